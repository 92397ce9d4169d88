"""The public functions that put the layers together: `penstock.run` and `penstock.simulate`.

The command line calls them, and adds a terminal.
"""
