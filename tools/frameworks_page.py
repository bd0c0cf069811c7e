"""The reference page of frameworks: what each does when nothing is said, and since when."""

from __future__ import annotations

from tuneplan.catalog.models import load_models
from tuneplan.frameworks import FRAMEWORKS, resolve_recipe
from tuneplan.frameworks.registry import NOT_SUPPORTED
from tuneplan.frameworks.resolve import ResolvedRecipe
from tuneplan.frameworks.timeline import Fact, facts
from tuneplan.frameworks.versions import AS_OF, newest_release, releases
from tuneplan.spec.stated import StatedRecipe

MODEL = "meta-llama/Meta-Llama-3-8B"
HEAD = """# Frameworks

The same words run as different jobs, by framework and version.
What a job leaves blank is taken from here, and each such value is an assumption in the answer:
its value, why, where it was read, and how to say otherwise.

Where versions are blank, the newest of the job's day are taken.
That day is `date`, else the day of the stated framework version, else that of the newest stated
library or, where that is later, the day on which the first model of that type was public,
else {as_of}.

## What runs when only the model and the method are stated

LoRA on {model}, one card with bf16 and flash attention, newest versions.
`generic` is no program: a plain Trainer loop with the values that are usually recommended.
"""
COLUMNS = (
    ("framework", lambda r: f"`{r.recipe.framework}` {r.recipe.framework_version}".strip()),
    ("weights", lambda r: str(r.recipe.frozen_dtype)),
    ("compute", lambda r: _compute(r)),
    ("adapter", lambda r: _adapter(r)),
    ("max_length", lambda r: f"{r.recipe.max_length}"),
    ("batch x steps", lambda r: _batch(r)),
    ("checkpointing", lambda r: str(r.recipe.gradient_checkpointing)),
    ("optimizer", lambda r: r.recipe.optimizer.name),
    ("loss", lambda r: str(r.recipe.loss.path)),
    ("attention", lambda r: str(r.recipe.attention)),
)


def _compute(found: ResolvedRecipe) -> str:
    way = "autocast" if found.recipe.autocast else "as loaded"
    return f"{found.recipe.compute_dtype}, {way}"


def _adapter(found: ResolvedRecipe) -> str:
    adapter = found.recipe.adapter
    if adapter is None:
        return ""
    return f"r {adapter.r} in {adapter.dtype} on {len(adapter.target_modules)} linears a layer"


def _batch(found: ResolvedRecipe) -> str:
    recipe = found.recipe
    return f"{recipe.per_device_train_batch_size} x {recipe.gradient_accumulation_steps}"


def frameworks_page() -> str:
    """The page as Markdown."""
    model = load_models().resolve(MODEL).architecture
    parts = [HEAD.format(as_of=AS_OF, model=model.name)]
    parts.append("| " + " | ".join(title for title, _ in COLUMNS) + " |")
    parts.append("|" + "---|" * len(COLUMNS))
    for name in FRAMEWORKS:
        stated = StatedRecipe(framework=name, method="lora")
        found = resolve_recipe(stated, model, None, world_size=1)
        parts.append("| " + " | ".join(make(found) for _, make in COLUMNS) + " |")
    parts.append("\nRefused by name, part of a later release: " + ", ".join(NOT_SUPPORTED) + ".\n")
    parts.append(
        "## Names\n\n| framework | other spellings | libraries that decide |\n|---|---|---|"
    )
    for framework in FRAMEWORKS.values():
        libraries = (framework.package, *framework.libraries)
        names = ", ".join(dict.fromkeys(library for library in libraries if library))
        parts.append(f"| `{framework.name}` | {', '.join(framework.aliases)} | {names} |")
    parts.append("\n## Newest releases known\n\n| library | version | day |\n|---|---|---|")
    for library in sorted(releases()):
        newest = newest_release(library)
        if newest is not None:
            parts.append(f"| {library} | {newest.version} | {newest.date} |")
    parts += _changes()
    return "\n".join(parts) + "\n"


def _changes() -> list[str]:
    parts = ["\n## What changed with which version\n"]
    parts.append("From `src/tuneplan/frameworks/data/defaults.csv`.\n")
    parts.append("| library | default | value | from | until | source |\n|---|---|---|---|---|---|")
    for rows in facts().values():
        parts += [_change(row) for row in rows]
    return parts


def _change(row: Fact) -> str:
    since = row.since or row.since_date or "first read"
    until = row.until or row.until_date
    return f"| {row.package} | {row.key} | {row.value} | {since} | {until} | {row.source} |"
