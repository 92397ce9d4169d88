"""The one place that touches Spark's private API, with a probe for each capability.

Written for PySpark 4.1 to 4.3. Every failure beyond the gateway leaves here as
``errors.SparkInternalsError``. Python tasks import ``task_controls`` from this package, so nothing is
imported here.
"""
