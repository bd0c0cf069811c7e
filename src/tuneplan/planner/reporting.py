"""Use-case: what a report is made of: one configuration, or a shortlist and its first plan."""

from __future__ import annotations

from tuneplan.frozen import dataclass
from tuneplan.planner.changing import with_settings
from tuneplan.planner.check import JobCheck, check_configuration
from tuneplan.planner.importing import Configuration
from tuneplan.planner.plan import Plan, plan_job
from tuneplan.planner.sources import Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What is reported.

    Attributes:
        plan: None where one configuration is reported.
        check: Of the configuration, or of the first plan; None where nothing fits.
    """

    plan: Plan | None
    check: JobCheck | None


def report_on(
    configuration: Configuration, sources: Sources, *, of: str | None, processes: int = 1
) -> Reported:
    """A plan or an estimate with what stands out about it.

    Args:
        configuration: The job.
        sources: Catalogues and prices.
        of: ``plan``, ``estimate``, or None: an estimate where the job says which card and how
            many, a plan where it leaves that open.
        processes: That a search may use.

    Raises:
        InputError: Everything the user can mend.
    """
    if of == "estimate" or (of is None and _is_settled(configuration)):
        return Reported(plan=None, check=check_configuration(configuration, sources))
    plan = plan_job(configuration.job, sources, processes=processes)
    if not plan.entries:
        return Reported(plan=plan, check=None)
    settled = with_settings(configuration.job, dict(plan.entries[0].settings))
    first = Configuration(job=settled, imported=configuration.imported, files=configuration.files)
    return Reported(plan=plan, check=check_configuration(first, sources))


def _is_settled(configuration: Configuration) -> bool:
    """Whether the hardware is stated and nothing is a choice."""
    job = configuration.job
    needed = ("hardware.accelerator", "hardware.accelerators_per_node")
    return all(key in job.stated for key in needed) and not job.choices
