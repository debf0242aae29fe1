"""Say from which age on a price in a data file is shown with a warning."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

#: An older price is shown with a warning.
FRESH: Final = timedelta(days=180)
