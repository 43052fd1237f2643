"""Where flanp keeps what it need not fetch or compile twice."""

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """Return $FLANP_CACHE, or the folder that the system has for a user's caches."""
    return Path(os.environ.get("FLANP_CACHE") or platformdirs.user_cache_dir("flanp"))
