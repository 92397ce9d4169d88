"""How Penstock is proved: five papers' applications, methods and trials beside ours. The product never imports this."""

import penstock_papers.reasons  # noqa: F401  # registers them
