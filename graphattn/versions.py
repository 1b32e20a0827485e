"""Which versions compute: of this package, and of those that are installed."""

from importlib import metadata

VERSION = "0.2.0"


def version_of(package: str) -> str | None:
    """Of an installed package; None where it is missing. This one may be a working tree that nobody
    installed.
    """
    if package == "graphattn":
        return VERSION
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
