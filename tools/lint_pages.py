"""The pages of the lint, made from the registry of its rules and from the cases of its tests."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from diagnosis.lint_cases import FIRES  # noqa: E402 - the tests of this tree
from tuneplan.diagnosis.finding import Finding  # noqa: E402
from tuneplan.diagnosis.registry import RULES  # noqa: E402

NEEDS = {
    None: "nothing besides the job",
    "accelerator": "the accelerator",
    "data": "the data",
    "run": "the accelerator and the data",
}


def lint_index(made: str) -> str:
    """Every rule on a line."""
    rows = [
        f"| [`{rule.name}`]({rule.name}.md) | {_severities(rule.name)} | {rule.looks_for} |"
        for rule in RULES.values()
    ]
    return f"""{made}

# What is pointed out

`tuneplan check` and `tuneplan report` look for the usual mistakes
and give the advice of a good colleague,
each with the figures of the job at hand and at the line that says it.
`tuneplan estimate` and `tuneplan plan` say what can be told
without estimating another configuration.

| rule | weight | what it looks for |
|---|---|---|
{chr(10).join(rows)}

An error fails or does not do what is asked, a warning loses time, money or memory,
advice is a better way if the aim allows it.

## To silence one

On the command line `tuneplan check JOB --ignore no_packing`
(any command: `--set lint.ignore=no_packing`), in the job file:

```yaml
model: Qwen/Qwen2.5-7B-Instruct
lint:
  ignore: [no_packing, single_card_first]
```

A silenced rule that had something to say is named, so that nobody forgets it;
a name that is no rule is refused.
"""


def lint_page(name: str, made: str) -> str:
    """One rule: what, why, when, an example of what it says, what to do, how to silence it."""
    rule = RULES[name]
    compares = (
        "It sets the job beside another configuration that is estimated in full, so only `check` "
        "and `report` have it."
        if rule.compares
        else "It needs no other configuration, so `estimate` and `plan` have it too."
    )
    shown = "\n".join(_shown(one) for one in _findings(name))
    evidence = ", ".join(f"`{key}`" for key in _evidence(name))
    return f"""{made}

# `{name}`

It looks for {rule.looks_for}.

**Why.** {rule.why}

**When it speaks.** {rule.speaks}
It must know {NEEDS[rule.needs]}.
{compares}

**What it says**, on the jobs of its tests:

```text
{shown}
```

**Evidence** in `--json`, figures of the job at hand: {evidence}.

**What to do.** {rule.remedy}

**To silence it.** `--ignore {name}`, or `lint: {{ignore: [{name}]}}` in the job file.
{rule.silence}

[All rules](index.md)
"""


def _findings(name: str) -> list[Finding]:
    found = [list(RULES[name].check(one)) for one in FIRES[name]]
    return [finding for each in found for finding in each]


def _shown(finding: Finding) -> str:
    lines = [f"{finding.severity.value} {finding.rule}  {finding.keys[0]}", f"  {finding.message}"]
    return "\n".join(lines + ([f"  to fix: {finding.fix}"] if finding.fix else []))


def _severities(name: str) -> str:
    return ", ".join(sorted({finding.severity.value for finding in _findings(name)}))


def _evidence(name: str) -> list[str]:
    return list(dict.fromkeys(key for finding in _findings(name) for key in finding.evidence))
