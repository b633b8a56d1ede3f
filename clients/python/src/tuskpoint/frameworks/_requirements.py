"""Error for a framework that is not installed, or is installed in another version."""

from __future__ import annotations

from importlib import metadata


def unusable(extra: str, package: str, cause: ImportError) -> ImportError:
    """Return the error to raise when the import of a framework failed.

    Args:
        extra: Extra of `tuskpoint` that installs the framework.
        package: Distribution of the framework.
        cause: Error of the import.
    """
    install = f"pip install 'tuskpoint[{extra}]'"
    try:
        installed = metadata.version(package)
    except metadata.PackageNotFoundError:
        return ImportError(f"this adapter needs the package {package}: {install}")
    return ImportError(
        f"this adapter supports {_supported(extra, package)} and cannot use "
        f"{package} {installed}, which is installed ({cause}): {install}"
    )


def _supported(extra: str, package: str) -> str:
    try:
        requirements = metadata.requires("tuskpoint") or []
    except metadata.PackageNotFoundError:
        requirements = []
    for requirement in requirements:
        specifier, _, condition = requirement.partition(";")
        if specifier.startswith(package) and extra in condition:
            return specifier.strip()
    return f"other versions of {package}"
