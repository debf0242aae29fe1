"""Define the team's policy, as data with documented defaults. A docs page is generated from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

from bot.rules.policy.consumers import ConsumerPolicy
from bot.rules.policy.defaults import disks, doc, frozen, idle_limits
from bot.rules.policy.images import Supported, image_capabilities, images, read_range
from bot.rules.policy.tiers import ApprovalTier


@dataclass(frozen=True, slots=True)
class Policy:
    """Say what a team allows. Amounts are dollars, times are seconds unless the name says hours."""

    approvers: tuple[str, ...] = field(
        default=(),
        metadata=doc("Slack user ids (U…) or actor references (operator:ada) who may decide and are told."),
    )
    approver_groups: tuple[str, ...] = field(
        default=(), metadata=doc("Slack user groups (S…); whoever is a member at the click may decide.")
    )
    may_approve_not_pinged: tuple[str, ...] = field(
        default=(), metadata=doc("May decide like an approver, but requests do not mention them.")
    )
    never_approve: tuple[str, ...] = field(
        default=(), metadata=doc("May never decide, whatever list or group they are in: a denial wins.")
    )
    same_person: tuple[tuple[str, ...], ...] = field(
        default=(),
        metadata=doc(
            "Names of one person at different doors, such as a Slack id and an operator; they ask and decide as one."
        ),
    )
    allow_self_approval: bool = field(
        default=False, metadata=doc("An approver may approve what they asked for themselves.")
    )
    allow_slack_decisions: bool = field(
        default=True,
        metadata=doc("Off: Slack only notifies; decisions are made over REST or on the command line."),
    )
    auto_approve_below_usd: Decimal | None = field(
        default=None, metadata=doc("A worst case below this needs no click. None: every spend is decided by a person.")
    )
    auto_approve_signed_by: str = field(
        default="", metadata=doc("Who signed for what the policy approves by itself; needed with such an amount.")
    )
    auto_approve_until: date | None = field(
        default=None,
        metadata=doc("The last day (UTC) on which the policy approves by itself; needed with the amount."),
    )
    auto_approve_daily_usd: Decimal = field(
        default=Decimal(25), metadata=doc("The most that the policy approves by itself in any 24 hours.")
    )
    two_approvers_above_usd: Decimal | None = field(
        default=None, metadata=doc("A worst case above this needs two different approvers. None: one is enough.")
    )
    approval_groups: Mapping[str, tuple[str, ...]] = field(
        default_factory=frozen,
        metadata=doc("Groups for the tiers: name to Slack ids, actor references and Slack user groups (S…)."),
    )
    approval_tiers: tuple[ApprovalTier, ...] = field(
        default=(),
        metadata=doc(
            "Rows, the first that fits decides: name, group, approvals (how many different people), then (groups that "
            "it goes on to), for a spend that is above_usd, above_hours, above_gpus, on gpus, or of a team, all of "
            "them where several are said. What fits none is for the approvers; what fits one, people decide."
        ),
    )
    escalate_to: tuple[str, ...] = field(
        default=(), metadata=doc("Groups that an undecided request goes on to, where its tier names none; they join.")
    )
    escalate_after_s: int = field(
        default=3600, metadata=doc("The first of them is asked after this, and each further one after as much again.")
    )
    delegation_days: int = field(
        default=92, metadata=doc("For how many days an approver may name somebody who decides in their place.")
    )
    break_glass: tuple[str, ...] = field(
        default=(),
        metadata=doc(
            "Who may start what they asked for without an approval, with a reason, inside the next two settings and "
            "every budget; all who decide are told. Nobody: it is off."
        ),
    )
    break_glass_usd: Decimal = field(
        default=Decimal(25), metadata=doc("The most that one person may start with so in 24 hours, in all.")
    )
    break_glass_hours: Decimal = field(
        default=Decimal(2), metadata=doc("For how long such a start is; more time is asked for like any.")
    )
    confirm_above_usd: Decimal = field(
        default=Decimal(100), metadata=doc("An expected total above this makes the approver type the amount.")
    )
    max_hours: Decimal = field(
        default=Decimal(12), metadata=doc("Longest time in all without an override with its own approval.")
    )
    max_hours_ever: Decimal = field(
        default=Decimal(720), metadata=doc("Longest time in all that can be asked for, even with an override.")
    )
    price_tolerance: Decimal = field(
        default=Decimal("1.10"), metadata=doc("An approval covers the quoted price per hour times this.")
    )
    request_ttl_s: int = field(default=7200, metadata=doc("A request that nobody decides expires after this."))
    remind_after_s: int = field(
        default=900, metadata=doc("First reminder of an undecided request; the pause doubles after each.")
    )
    failover: bool = field(
        default=True, metadata=doc("After a definite no, the next option of the same message is tried inside the cap.")
    )
    replacements: int = field(
        default=1,
        metadata=doc(
            "How many lost instances one approval replaces from its remaining cap and hours, booting or in use."
        ),
    )
    warn_before_end_s: tuple[int, ...] = field(
        default=(3600, 1800, 600, 120),
        metadata=doc("The owner is told this long before the approved end; one message, updated at each of these."),
    )
    fallback_contacts: tuple[str, ...] = field(
        default=(),
        metadata=doc(
            "Slack users (U…) or channels (C…) that are told when the owner cannot be; they may act like the owner. "
            "None: the channel of the request is told."
        ),
    )
    overspend_tolerance: Decimal = field(
        default=Decimal("0.10"),
        metadata=doc("A session that will cost more than was approved by this share is asked about again."),
    )
    overspend_answer_s: int = field(
        default=900, metadata=doc("Without an answer to that by then it is stopped, where that saves money.")
    )
    checkpoint_unverified: str = field(
        default="keep",
        metadata=doc(
            "What happens to a machine whose checkpoint is not verified at its end, when nobody answers: keep (stopped "
            "with its disk, or held where a stop cannot keep it, as long as was reserved when it was approved) or "
            "destroy."
        ),
    )
    checkpoint_save_s: int = field(
        default=600, metadata=doc("How long its agent may take to save and upload before that is decided.")
    )
    checkpoint_max_age_s: int = field(
        default=3600, metadata=doc("A checkpoint that lacks more work than this is not taken for verified.")
    )
    checkpoint_hold_s: int = field(
        default=7200,
        metadata=doc(
            "How long an unverified machine is held where a stop cannot keep its disk; an approval "
            "reserves what that costs, and it counts as time."
        ),
    )
    checkpoint_operator_s: int = field(
        default=3600, metadata=doc("So long before the hold is used up, the operators are asked as well.")
    )
    checkpoint_disk_s: int = field(
        default=86_400,
        metadata=doc(
            "How long the disk of such a machine is kept where a stop keeps it; an approval reserves what that costs."
        ),
    )
    end_when_unresponsive: bool = field(
        default=True,
        metadata=doc("A session is ended when its machine's agent, having reported before, stops reporting."),
    )
    unresponsive_s: int = field(
        default=900, metadata=doc("Time without a report after which its owner is told that it will be ended.")
    )
    unresponsive_grace_s: int = field(default=300, metadata=doc("From that message to the end."))
    end_when_idle: bool = field(
        default=True, metadata=doc("A session is ended when its agent reports that no GPU does anything.")
    )
    idle_below_percent: Decimal = field(
        default=Decimal(5), metadata=doc("A GPU below this utilisation does nothing (percent).")
    )
    idle_s: Mapping[str, int] = field(
        default_factory=idle_limits,
        metadata=doc("Idling per workload after which its owner is told; `default` is for all others."),
    )
    idle_grace_s: int = field(default=600, metadata=doc("From that message to the end."))
    done_grace_s: int = field(
        default=120, metadata=doc("From the message that a job is over, as its agent says, to the end.")
    )
    max_gpus: int = field(default=16, metadata=doc("Most GPUs in one request."))
    max_open_requests_per_user: int = field(
        default=5, metadata=doc("Most undecided requests that one person may have open.")
    )
    max_reason_chars: int = field(default=500, metadata=doc("Longest reason of a request or of a rejection."))
    min_disk_gb: Mapping[str, int] = field(
        default_factory=disks, metadata=doc("Smallest disk per workload; `default` is for all others.")
    )
    default_image: Mapping[str, str] = field(
        default_factory=images,
        metadata=doc("Image per `cloud/stack`, per `cloud`, or `default`; the first of these that exists is used."),
    )
    image_capabilities: Mapping[str, str] = field(
        default_factory=image_capabilities,
        metadata=doc(
            "Least and greatest CUDA compute capability per image. A GPU outside it is not offered with that image; "
            "images that are not named here run everywhere."
        ),
    )
    blocked_hosts: tuple[str, ...] = field(
        default=(), metadata=doc("Hosts or machines that are never offered, as cloud:id.")
    )
    blocked_countries: tuple[str, ...] = field(
        default=(), metadata=doc("Countries that are never offered: two letters, or EU for all of its members.")
    )
    blocked_gpus: tuple[str, ...] = field(
        default=(), metadata=doc("Canonical GPU names that are never offered, such as those a stack does not support.")
    )
    options_shown: int = field(default=5, metadata=doc("How many ranked options a request shows."))
    retry_buffer: Decimal = field(
        default=Decimal("0.10"),
        metadata=doc("Share of the compute cost that an estimate keeps for retries."),
    )
    egress_gb: Decimal = field(default=Decimal(10), metadata=doc("Data sent out per run that an estimate assumes."))
    ingress_gb: Decimal = field(
        default=Decimal(20), metadata=doc("Data fetched per run, the image included, that an estimate assumes.")
    )
    assumed_reliability: Decimal = field(
        default=Decimal("0.95"), metadata=doc("Reliability of a host whose cloud reports none.")
    )
    assumed_datacenter_reliability: Decimal = field(
        default=Decimal("0.99"), metadata=doc("The same for an offer that the cloud says is in a data center.")
    )
    spot_interruption: Decimal = field(
        default=Decimal("0.15"), metadata=doc("Chance that a spot instance is taken back, on top of its host's own.")
    )
    loss_window_h: Decimal = field(
        default=Decimal(24),
        metadata=doc("Hours within which a reliability and spot_interruption are read as chances of a loss."),
    )
    checkpoint_write_gb_s: Decimal = field(
        default=Decimal("0.5"),
        metadata=doc("GB per second at which a checkpoint is written; a network disk's, to be on the safe side."),
    )
    store_usd_gb_month: Decimal = field(
        default=Decimal("0.023"), metadata=doc("Dollars per GB and month of the store that keeps checkpoints.")
    )
    risk_weight: Decimal = field(
        default=Decimal("0.10"),
        metadata=doc("Ranking adds this times the chance of losing the host times the compute cost; 0 ignores risk."),
    )
    teams: Mapping[str, tuple[str, ...]] = field(
        default_factory=frozen, metadata=doc("Teams that share a budget: name to Slack ids or actor references.")
    )
    budgets: Mapping[str, Mapping[str, Decimal]] = field(
        default_factory=frozen,
        metadata=doc(
            "Most dollars per scope (global, team:NAME, user:ID or user:*, consumer:NAME or consumer:*, label:NAME or "
            "label:*) and time (hourly, daily, monthly, total; days and months in UTC). What approvals may still spend "
            "counts; hourly is the sum of the approved prices per hour."
        ),
    )
    budget_thresholds: tuple[Decimal, ...] = field(
        default=(Decimal("0.5"), Decimal("0.8"), Decimal(1)),
        metadata=doc("Shares of a budget whose owners are told when an approval reaches them."),
    )
    budget_owners: Mapping[str, tuple[str, ...]] = field(
        default_factory=frozen,
        metadata=doc("Slack users or channels told about each scope; the administrators, or else the operators."),
    )
    budget_admins: tuple[str, ...] = field(
        default=(),
        metadata=doc("Who among the approvers may approve above a budget; they type the amount (U… or operator:ada)."),
    )
    consumers: Mapping[str, ConsumerPolicy] = field(
        default_factory=frozen,
        metadata=doc(
            "Programs by name, each with clouds, gpus, max_hours, defaults (fields of the portable job request) and "
            "auto_approve_below_usd, _daily_usd, _until and _signed_by of its own; what is left out limits nothing."
        ),
    )
    webhook_networks: tuple[str, ...] = field(
        default=(), metadata=doc("Networks that are not public and may be told all the same, as in 10.1.0.0/16.")
    )
    webhook_ports: tuple[int, ...] = field(
        default=(443,), metadata=doc("Ports of public addresses that webhooks may name; always by https.")
    )
    digest_at: str = field(default="09:00", metadata=doc("When the daily digest is shown; nothing for no digest."))
    digest_timezone: str = field(
        default="UTC", metadata=doc("Whose time that is, and whose days it speaks of, as in Europe/Berlin.")
    )
    digest_weekly: str = field(default="monday", metadata=doc("The day of the weekly digest; nothing for none."))
    digest_channel: str = field(
        default="", metadata=doc("Where digests are shown (C…); the approvals channel if empty.")
    )
    cost_ledger_file: str = field(
        default="", metadata=doc("A `cost_ledger.json` into which other tools write their costs; read every minute.")
    )
    external_entry_usd: Decimal = field(
        default=Decimal(1000), metadata=doc("The largest amount of one cost or refund that another tool may append.")
    )
    project: str = field(default="gpu", metadata=doc("The label of what names none: {project} in names."))
    name_template: str = field(
        default="{project}-{model}-{count}x{gpu}",
        metadata=doc("Human part of an instance's name: {project}, {model}, {count} and {gpu}."),
    )

    def disk_gb(self, workload: str, asked_gb: int | None) -> int:
        """Return GB of disk to rent: what was asked, at least the minimum for that workload."""
        least = self.min_disk_gb.get(workload.lower(), self.min_disk_gb["default"])
        return max(least, asked_gb or 0)

    def image(self, cloud: str, stack: str = "") -> str:
        """Return the image for `cloud` and `stack` when the request names none."""
        keys = (f"{cloud}/{stack}", cloud, "default")
        return next(self.default_image[key] for key in keys if key in self.default_image)

    def capabilities_of(self, image: str) -> Supported:
        """Return the compute capabilities that an image has code for; an unknown image excludes no offer."""
        return read_range(self.image_capabilities.get(image, ""))
