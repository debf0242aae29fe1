"""Define the team's policy, as data with documented defaults. A docs page is generated from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from bot.rules.policy.consumers import ConsumerPolicy
from bot.rules.policy.defaults import disks, frozen, idle_limits, idle_signals, setting
from bot.rules.policy.images import (
    ImageNeeds,
    Supported,
    image_capabilities,
    images,
    read_cuda,
    read_range,
    read_vendor,
)
from bot.rules.policy.model_profiles import ModelProfile
from bot.rules.policy.tiers import ApprovalTier
from providers.images import Vendor, cuda_of, vendor_of


@dataclass(frozen=True, slots=True)
class Policy:
    """Say what a team allows. Amounts are dollars, times are seconds unless the name says hours."""

    approvers: tuple[str, ...] = setting(
        (), "Approvers: Slack user ids (U…) or actor references (operator:ada). Requests mention them."
    )
    approver_groups: tuple[str, ...] = setting((), "Slack user groups (S…). Their members at the click are approvers.")
    may_approve_not_pinged: tuple[str, ...] = setting((), "Approvers whom requests do not mention.")
    never_approve: tuple[str, ...] = setting(
        (), "May never approve or reject, whatever list or group they are in: a denial wins."
    )
    same_person: tuple[tuple[str, ...], ...] = setting(
        (),
        "Names of one person, such as a Slack id and an operator. Each has the rights of all, and together they count "
        "as one requester and one approver.",
    )
    guests_may_request: bool = setting(
        False, "Guests of the workspace may request GPUs and read about their own requests; they never approve."
    )
    allow_self_approval: bool = setting(False, "An approver may approve their own request.")
    allow_slack_decisions: bool = setting(
        True, "Off: Slack only notifies, and people approve over REST or on the command line."
    )
    auto_approve_below_usd: Decimal | None = setting(
        None, "A worst case below this is auto-approved. None: a person approves every spend."
    )
    auto_approve_signed_by: str = setting(
        "", "Who is responsible for what the policy approves by itself; needed with such an amount."
    )
    auto_approve_until: date | None = setting(
        None, "The last day (UTC) on which the policy approves by itself; needed with the amount."
    )
    auto_approve_daily_usd: Decimal = setting(
        Decimal(25), "The most that the policy approves by itself in any 24 hours."
    )
    two_approvers_above_usd: Decimal | None = setting(
        None, "A worst case above this needs two different approvers. None: one is enough."
    )
    approval_groups: Mapping[str, tuple[str, ...]] = setting(
        frozen(), "Groups for the tiers: name to Slack ids, actor references and Slack user groups (S…)."
    )
    approval_tiers: tuple[ApprovalTier, ...] = setting(
        (),
        "Tiers, of which the first match counts. Each has a name, a group, approvals (how many different people) and "
        "then (the groups that can approve later). Its conditions are above_usd, above_hours, above_gpus, gpus and "
        "team; all of them must match. Without a tier, any approver can approve. A match is never auto-approved.",
    )
    escalate_to: tuple[str, ...] = setting(
        (),
        "Groups that can approve a pending request later, where its tier names none. Earlier groups still can, too.",
    )
    escalate_after_s: int = setting(
        3600, "The first of these groups can approve after this time, and each further one after the same time again."
    )
    delegation_days: int = setting(92, "For how many days an approver may delegate approvals.")
    break_glass: tuple[str, ...] = setting(
        (),
        "Who may start their own request without an approval, with a reason, inside the next two settings and every "
        "budget; every approver is notified. Nobody: it is off.",
    )
    break_glass_usd: Decimal = setting(Decimal(25), "The most that one person may spend in this way in any 24 hours.")
    break_glass_hours: Decimal = setting(Decimal(2), "How long such a session lasts; more time needs an approval.")
    confirm_above_usd: Decimal = setting(
        Decimal(100), "An expected total above this makes the approver type the amount."
    )
    max_hours: Decimal = setting(Decimal(12), "Longest time in all without an override with its own approval.")
    max_hours_ever: Decimal = setting(Decimal(720), "Longest time in all that can be requested, even with an override.")
    price_tolerance: Decimal = setting(
        Decimal("1.10"),
        "An approval covers the quoted price per hour times this, and the expected total times this. A session that "
        "will cost more needs a new approval.",
    )
    request_ttl_s: int = setting(7200, "A request that nobody approves or rejects expires after this.")
    max_wait_hours: Decimal = setting(
        Decimal(168), "Longest time for which a request may wait for an offer or for its start."
    )
    presets: Mapping[str, str] = setting(
        frozen(), "Jobs that a team shares: name to the words of a job, used as `preset=NAME` with other words."
    )
    instance_profiles: Mapping[str, ModelProfile] = setting(
        frozen(),
        "A YAML file beside the policy file: each model's GPUs, least disk and allowed configs, for `profile=NAME`. "
        "A job with another config is refused.",
    )
    remind_after_s: int = setting(900, "First reminder of a pending request; the pause doubles after each.")
    failover: bool = setting(True, "When a cloud refuses, the next option of the same message is tried inside the cap.")
    replacements: int = setting(
        1, "How many lost instances one approval replaces from its remaining cap and hours, booting or in use."
    )
    warn_before_end_s: tuple[int, ...] = setting(
        (3600, 1800, 600, 120),
        "The owner is warned this long before the approved end, in one message that is updated at each of these times.",
    )
    volume_grace_days: int = setting(
        7,
        "When the approved amount no longer pays for a network volume, people get a notice a day. After this many days "
        "of notices the volume is deleted. Each approval of a volume covers these days.",
    )
    volume_growth: Decimal = setting(
        Decimal(2),
        "Some clouds set no limit to the size of a volume. There, an approval covers these days for this many times "
        "the approved size. When the volume grows beyond that, approvers are asked.",
    )
    volume_excess_usd: Decimal = setting(
        Decimal(50),
        "The most that the days of notices of one volume may cost beyond its approvals. At a higher rate the days "
        "become fewer, and never fewer than one.",
    )
    fallback_contacts: tuple[str, ...] = setting(
        (),
        "Slack users (U…) or channels (C…) that are notified when the owner cannot be reached; they may act like the "
        "owner. None: the channel of the request is notified.",
    )
    overspend_answer_s: int = setting(900, "Without an answer by then the session is stopped, where that saves money.")
    suggest_move_usd: Decimal | None = setting(
        Decimal(5),
        "An owner is notified, at most once a day, when a run would finish at least this much cheaper elsewhere. The "
        "cost of the move is counted. None: nobody is notified.",
    )
    suggest_move_percent: Decimal = setting(
        Decimal(10), "The least that such a move saves, in percent of the run's remaining cost."
    )
    checkpoint_unverified: str = setting(
        "keep",
        "What happens to a machine whose checkpoint is not verified at its end, when nobody answers: keep or destroy. "
        "keep stops it and retains its disk; where a stop deletes the disk, it keeps running. Either lasts as long as "
        "the approval reserved money for it.",
    )
    checkpoint_places: tuple[str, ...] = setting(
        (),
        "Where checkpoints may be read with the service's own credentials, each with everything below it, such as "
        "s3://bucket/runs, gs://bucket/runs or hf://org; without an entry nowhere.",
    )
    checkpoint_save_s: int = setting(
        600, "How long the agent may take to save and upload before the checkpoint is verified."
    )
    checkpoint_max_age_s: int = setting(3600, "A checkpoint that lacks more work than this does not count as verified.")
    checkpoint_hold_s: int = setting(
        7200,
        "How long an unverified machine keeps running where a stop would delete its disk. An approval "
        "reserves what that costs, and it counts as time.",
    )
    checkpoint_operator_s: int = setting(
        3600, "This long before that time is used up, the operators are notified, too."
    )
    checkpoint_disk_s: int = setting(
        86_400,
        "How long the disk of such a machine stays where a stop keeps it. An approval reserves what that costs.",
    )
    validate_login: bool = setting(
        True,
        "A machine is ready only after GPU Shopper logged in over SSH and found the GPUs that were bought. Off, for "
        "images whose SSH server is not a usual one: it is ready when the SSH server answers.",
    )
    grace_usd: Decimal | None = setting(
        None,
        "The most that waiting may cost for a machine that stopped working, where something on it would be lost. "
        "None: 5% of the approved total, and at least $1. The limit is never more than the approval still covers.",
    )
    runway_hours: Decimal = setting(
        Decimal(12), "Operators are notified when a cloud's balance pays what runs there for fewer hours than this."
    )
    end_when_unresponsive: bool = setting(
        True, "A session is ended when its machine's agent, having reported before, stops reporting."
    )
    unresponsive_s: int = setting(
        900, "Time without a report after which the owner is warned that the session will end."
    )
    unresponsive_grace_s: int = setting(300, "From that message to the end.")
    end_when_idle: bool = setting(True, "A session ends when its agent reports that no GPU does anything.")
    idle_below_percent: Decimal = setting(Decimal(5), "A GPU below this utilisation counts as idle (percent).")
    idle_s: Mapping[str, int] = setting(
        idle_limits(), "Idle time per workload after which the owner is warned; `default` is for all others."
    )
    idle_also_needs: Mapping[str, tuple[str, ...]] = setting(
        idle_signals(),
        "What must rest beside the GPUs before a machine counts as idle, per workload: `cpu`, `network` or `login`.",
    )
    idle_cpu_below_percent: Decimal = setting(Decimal(2), "CPUs below this average count as idle (percent of all).")
    idle_network_below_kb_s: int = setting(5, "A network below this average counts as idle (kB/s, both directions).")
    idle_grace_s: int = setting(600, "From that message to the end.")
    record_runs: bool = setting(
        True, "A described training run is recorded when its session ends: the rate its agent reported corrects plans."
    )
    done_grace_s: int = setting(120, "From the message that a job has finished, as its agent reports, to the end.")
    max_gpus: int = setting(16, "Most GPUs in one request.")
    max_open_requests_per_user: int = setting(5, "Most pending requests that one person may have.")
    max_requests_per_hour: int = setting(
        60,
        "Most requests that one person or program may make within an hour, whatever became of them. What a program "
        "requests with its own key counts for the program and not for its owner. What a person requests for a program, "
        "or their AI agent requests, counts for the person too. Requests for more time and for a move have the same "
        "number for each session.",
    )
    max_reason_chars: int = setting(500, "Longest reason of a request or of a rejection.")
    min_disk_gb: Mapping[str, int] = setting(disks(), "Smallest disk per workload; `default` is for all others.")
    default_image: Mapping[str, str] = setting(
        images(),
        "Image per `cloud/NAME` for jobs with install=NAME, per `cloud`, or `default`; the first of these that exists "
        "is used.",
    )
    image_capabilities: Mapping[str, str] = setting(
        image_capabilities(),
        "Least and greatest CUDA compute capability per image. A GPU outside it is not offered with that image; "
        "images that are not named here run everywhere.",
    )
    image_cuda: Mapping[str, str] = setting(
        frozen(),
        "Least CUDA version of the host per image, for images whose name does not say it as cuda12.8 or cu128 does.",
    )
    image_vendor: Mapping[str, str] = setting(
        frozen(),
        "Maker of the GPUs that an image is built for, NVIDIA or AMD, where its name does not say it; one without a "
        "maker is not offered on AMD.",
    )
    gpu_capabilities: Mapping[str, str] = setting(
        frozen(), "CUDA compute capability of GPUs that GPU Shopper does not know and whose cloud reports none."
    )
    blocked_hosts: tuple[str, ...] = setting((), "Hosts or machines that are never offered, as cloud:id.")
    blocked_countries: tuple[str, ...] = setting(
        (), "Countries that are never offered: two letters, or EU for all of its members."
    )
    blocked_gpus: tuple[str, ...] = setting(
        (), "Canonical GPU names that are never offered, such as those a stack does not support."
    )
    options_shown: int = setting(5, "How many ranked options a request shows.")
    retry_buffer: Decimal = setting(Decimal("0.10"), "Share of the compute cost that an estimate keeps for retries.")
    egress_gb: Decimal = setting(Decimal(10), "Data sent out per run that an estimate assumes.")
    ingress_gb: Decimal = setting(Decimal(20), "Data fetched per run, the image included, that an estimate assumes.")
    assumed_reliability: Decimal = setting(Decimal("0.95"), "Reliability of a host whose cloud reports none.")
    assumed_datacenter_reliability: Decimal = setting(
        Decimal("0.99"), "The same for an offer that the cloud says is in a data center."
    )
    spot_interruption: Decimal = setting(
        Decimal("0.15"), "Chance that a spot instance is taken back, on top of its host's own."
    )
    loss_window_h: Decimal = setting(
        Decimal(24), "Hours within which a reliability and spot_interruption are read as chances of a loss."
    )
    checkpoint_write_gb_s: Decimal = setting(
        Decimal("0.5"), "GB per second at which a checkpoint is written; a network disk's, to be on the safe side."
    )
    store_usd_gb_month: Decimal = setting(
        Decimal("0.023"), "Dollars per GB and month of the store that keeps checkpoints."
    )
    risk_weight: Decimal = setting(
        Decimal("0.10"), "Ranking adds this times the chance of losing the host times the compute cost; 0 ignores risk."
    )
    teams: Mapping[str, tuple[str, ...]] = setting(
        frozen(), "Teams that share a budget: name to Slack ids or actor references."
    )
    budgets: Mapping[str, Mapping[str, Decimal]] = setting(
        frozen(),
        "Most dollars per scope (global, team:NAME, user:ID or user:*, consumer:NAME or consumer:*, label:NAME or "
        "label:*) and time (hourly, daily, monthly, total; days and months in UTC). What approvals may still spend "
        "counts; hourly is the sum of the approved prices per hour.",
    )
    budget_thresholds: tuple[Decimal, ...] = setting(
        (Decimal("0.5"), Decimal("0.8"), Decimal(1)),
        "Shares of a budget; its owners are notified when an approval reaches one.",
    )
    budget_own_thresholds: Mapping[str, tuple[Decimal, ...]] = setting(
        frozen(), "The shares for one scope of `budgets`, in place of `budget_thresholds`; none: nobody is notified."
    )
    budget_owners: Mapping[str, tuple[str, ...]] = setting(
        frozen(),
        "Slack users or channels notified about each scope; without any, the administrators, or else the operators.",
    )
    budget_admins: tuple[str, ...] = setting(
        (), "Who among the approvers may approve above a budget; they type the amount (U… or operator:ada)."
    )
    consumers: Mapping[str, ConsumerPolicy] = setting(
        frozen(),
        "Programs by name. Each may have clouds, gpus, max_hours and defaults (fields of the portable job request). It "
        "may have its own auto_approve_below_usd, _daily_usd, _until and _signed_by. What is left out limits nothing.",
    )
    webhook_networks: tuple[str, ...] = setting(
        (), "Networks that are not public and may receive webhooks nevertheless, as in 10.1.0.0/16."
    )
    webhook_ports: tuple[int, ...] = setting(
        (443,), "Ports of public addresses that webhooks may name; always by https."
    )
    digest_at: str = setting("09:00", "When the daily digest is shown; nothing for no digest.")
    digest_timezone: str = setting(
        "UTC", "The time zone of that time and of the days in the digest, such as Europe/Berlin."
    )
    digest_weekly: str = setting("monday", "The day of the weekly digest; nothing for none.")
    digest_channel: str = setting("", "Where digests are shown (C…); the approvals channel if empty.")
    cost_ledger_file: str = setting(
        "", "A `cost_ledger.json` into which other tools write their costs; read every minute."
    )
    external_entry_usd: Decimal = setting(
        Decimal(1000), "The largest amount of one cost or refund that another tool may append."
    )
    project: str = setting("gpu", "The label of what names none: {project} in names.")
    name_template: str = setting(
        "{project}-{model}-{count}x{gpu}", "Human part of an instance's name: {project}, {model}, {count} and {gpu}."
    )

    def thresholds(self, scope: str) -> tuple[Decimal, ...]:
        """Return the shares of the budget of a scope whose owners are notified when they are reached."""
        return self.budget_own_thresholds.get(scope, self.budget_thresholds)

    def disk_gb(self, workload: str, asked_gb: int | None, model: str | None = None) -> int:
        """Return the GB of disk to rent: the requested size, at least the minimum for that workload and that model."""
        least = [self.min_disk_gb.get(name.lower(), 0) for name in (workload, model or "")]
        return max(*(least if any(least) else [self.min_disk_gb["default"]]), asked_gb or 0)

    def image(self, cloud: str, stack: str = "") -> str:
        """Return the image for `cloud` and `stack` when the request names none."""
        keys = (f"{cloud}/{stack}", cloud, "default")
        return next(self.default_image[key] for key in keys if key in self.default_image)

    def capabilities_of(self, image: str) -> Supported:
        """Return the compute capabilities that an image has code for; an unknown image excludes no offer."""
        return read_range(self.image_capabilities.get(image, ""))

    def needs_of(self, image: str) -> ImageNeeds:
        """Return what an image needs of a host and its GPU, as the policy or else its name says."""
        capabilities, vendor = self.capabilities_of(image), read_vendor(self.image_vendor.get(image, ""))
        vendor = vendor or vendor_of(image)
        cuda = read_cuda(self.image_cuda.get(image, "")) or cuda_of(image)
        if vendor is None and (capabilities is not None or cuda is not None):
            vendor = Vendor.NVIDIA
        return ImageNeeds(capabilities, vendor, cuda)
