"""Which job really runs: defaults of training frameworks by version and date.

May import: ``spec``, ``estimation``, ``errors``, ``language``, ``units``. Read first:
``resolve.py`` (the entry point), then ``trl.py`` as the example of a framework.
"""

from tuneplan.frameworks.registry import FRAMEWORKS
from tuneplan.frameworks.resolve import DEFAULT_FRAMEWORK, ResolvedRecipe, resolve_recipe

__all__ = ["DEFAULT_FRAMEWORK", "FRAMEWORKS", "ResolvedRecipe", "resolve_recipe"]
