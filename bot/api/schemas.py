"""What routes take and give. What comes in holds nothing unknown; money goes out as decimal strings, times as UTC."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from bot.api.endpoints import NodeApiOut, Ssh
from bot.rules.access.scopes import KEY_DAYS
from bot.rules.budgets.budget import Period
from ledger.kernel.states import RequestState, SessionState

Item = TypeVar("Item")


class In(BaseModel):
    """A body."""

    model_config = ConfigDict(extra="forbid")


class Out(BaseModel):
    """An answer."""

    model_config = ConfigDict(from_attributes=True)


class Page(Out, Generic[Item]):
    """Some of many, the newest first; `next_cursor` fetches the rest, and is null at the end."""

    items: list[Item]
    next_cursor: str | None = None


class Done(Out):
    """A command that was carried out: a stable code, and the sentence that every door shows."""

    code: str
    sentence: str
    request_id: str | None = None
    session_id: str | None = None
    url: str | None = Field(default=None, description="Where to see how it goes on.")


class OptionOut(Out):
    """One offer of a request's quote. Approving it covers its price times the policy's tolerance."""

    rank: int
    offer_id: str
    cloud: str
    gpu: str
    gpu_count: int
    memory_gb: Decimal
    region: str
    spot: bool
    price_usd_h: Decimal
    best_usd: Decimal
    expected_usd: Decimal
    worst_usd: Decimal
    marks: list[str]
    why: str
    parts: str = ""
    hold: str = Field(default="", description="What of the worst case is for a hold at its end, to save checkpoints.")


class ApprovalOut(Out):
    """One recorded decision and what it covers."""

    approver: str
    decision: str
    quote_version: int
    price_cap_usd_h: Decimal | None
    total_cap_usd: Decimal | None
    hours: str | None
    reason: str
    at: datetime
    on_behalf_of: str | None
    digest: str | None


class Waiting(Out):
    """For whom a request waits, since when and until when."""

    rule: str
    approvers: list[str]
    approver_groups: list[str]
    approvals: int
    required: int
    digest: str
    hours: Decimal
    since: datetime
    until: datetime


class RequestSummary(Out):
    """A request in a list."""

    id: str
    kind: str
    state: RequestState
    requester: str
    reason: str
    outcome: str
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    decided_by: str | None


class RequestOut(RequestSummary):
    """A request in full. `waiting` is null once it is decided; `override_id` is the request for more hours."""

    job: dict[str, Any]
    quote_version: int
    options: list[OptionOut]
    approvals: list[ApprovalOut]
    excluded: list[str]
    waiting: Waiting | None
    parent_id: str | None
    override_id: str | None
    override_state: str | None
    session_id: str | None
    held: str = ""
    hint: str = Field(default="", description="What to know before it is decided, such as that its owner has no key.")


class AgentOut(Out):
    """What the agent on the machine says: nothing of it when none ever reported. Percent per GPU."""

    line: str
    heartbeat_age_s: int | None = None
    utilisation: list[Decimal] = []
    step: int | None = None
    target_step: int | None = None
    tokens_per_s: Decimal | None = None
    idle_since: datetime | None = None
    eta: datetime | None = None
    cost_to_finish_usd: Decimal | None = None


class Terms(Out):
    """What holds for a session: what was approved with its machine (extensions add to it), what may end it early."""

    price_cap_usd_h: Decimal | None
    total_cap_usd: Decimal | None
    replacements_left: int
    ends_when_silent: bool
    ends_when_idle: bool


class DiskOut(Out):
    """The disk of a session whose machine stands still: what it costs, and when it is deleted."""

    id: str
    price_usd_h: Decimal
    since: datetime
    until: datetime


class SessionOut(Out):
    """A session. `cost_usd` is what it has cost so far; `deadline` is its approved end.

    One that is over at a cloud that does not say what it charged is `unreconciled`: it cost between `low_usd` and
    `high_usd`.
    """

    id: str
    request_id: str
    state: SessionState
    owner: str
    gpu: str
    gpu_count: int
    cloud: str | None
    price_usd_h: Decimal | None
    cost_usd: Decimal
    low_usd: Decimal | None = None
    high_usd: Decimal | None = None
    unreconciled: bool = False
    hours: Decimal
    created_at: datetime
    ready_at: datetime | None
    deadline: datetime | None
    ended_at: datetime | None
    end_code: str
    end_reason: str
    status: str
    #: An end before the approved one that was announced, and why.
    ends_early_at: datetime | None = None
    ends_early_because: str = ""
    #: Why its end, which is ordered, waits for a checkpoint.
    end_waits_because: str = ""
    disk: DiskOut | None = None
    agent: AgentOut | None = None
    policy: Terms | None = None
    node_api: NodeApiOut | None = None
    held: str = ""
    ssh: Ssh | None


class CompareIn(In):
    """A comparison in the words of `/gpu compare`: budget, hours, buffer, baseline, success, value."""

    words: Annotated[dict[str, str], Field(max_length=10, examples=[{"budget": "500", "hours": "1"}])] = {}


class ProfileOut(Out):
    """What is peculiar to one cloud."""

    cloud: str
    kind: str
    ends_the_meter: str
    spot: bool
    text: str


class ApproveIn(In):
    """Which option is approved, at which version of the quote, and the amount typed where the policy wants it.

    An override for more hours has no option.
    """

    offer_id: Annotated[str, Field(max_length=256)] | None = Field(default=None, examples=["vast:30406190"])
    quote_version: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="The version whose offers were read; a newer one refuses."
    )
    amount: Annotated[str, Field(max_length=40)] | None = Field(default=None, examples=["123.45"])
    cap_usd: Annotated[str, Field(pattern=r"^[0-9]{1,7}(\.[0-9]{1,6})?$")] | None = Field(
        default=None, description="A total below the worst case, in dollars.", examples=["12.50"]
    )
    reason: Annotated[str, Field(max_length=4000)] = ""
    hours: (
        Annotated[Decimal, Field(allow_inf_nan=False, max_digits=30)] | Annotated[str, Field(max_length=40)] | None
    ) = Field(default=None, description="A shorter time than was asked for.", examples=["4h"])
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")] | None = Field(
        default=None, description="What stood when it was read; needed once another approver has changed something."
    )


class ReasonIn(In):
    """Why; a rejection needs it."""

    reason: Annotated[str, Field(max_length=4000)] = ""


class ExtendIn(In):
    """How much more time, and why."""

    hours: Annotated[Decimal, Field(allow_inf_nan=False, max_digits=30)] | Annotated[str, Field(max_length=40)] = Field(
        examples=["2h"]
    )
    reason: Annotated[str, Field(max_length=4000)] = ""


class DoneIn(In):
    """How the work went, and what becomes of the disk."""

    succeeded: bool = True
    storage: Literal["destroy", "preserve"] = "destroy"


class BudgetIn(In):
    """A budget: whose (global, team:NAME, user:ID, consumer:NAME, label:NAME), for which time, and how many dollars."""

    scope: Annotated[str, Field(max_length=90)] = Field(examples=["consumer:atlas"])
    period: Period
    limit_usd: Annotated[str, Field(pattern=r"^[0-9]{1,7}(\.[0-9]{1,6})?$")] | None = Field(
        default=None, description="Dollars (an hourly one: dollars per hour); null forgets the limit."
    )
    reason: Annotated[str, Field(max_length=500)] = ""


class BudgetOut(Out):
    """One budget: `open_usd` is what approvals in force may still spend. An hourly one is in dollars per hour."""

    key: str
    period: str
    limit_usd: Decimal
    spent_usd: Decimal
    open_usd: Decimal
    since: datetime | None
    sentence: str


class CostShare(Out):
    """What one name of a grouping cost."""

    name: str
    usd: Decimal


class FinishedOut(Out):
    """The sessions that ended with a word on how their work went, and what a success has cost, failures included."""

    runs: int
    successes: int
    spent_usd: Decimal
    success_rate: Decimal | None
    per_success_usd: Decimal | None
    sentence: str


class CostBucket(Out):
    """What was spent in the hour, day or month that began then."""

    since: datetime
    usd: Decimal


class CostsOut(Out):
    """What was booked, in dollars; the running hour is not in it yet. Buckets without costs are left out.

    `total_usd`, `buckets`, `groups` and `finished` are of the time from `since` on.
    """

    period: str
    since: datetime
    today_usd: Decimal
    month_usd: Decimal
    total_usd: Decimal
    buckets: list[CostBucket]
    groups: dict[str, list[CostShare]]
    finished: FinishedOut


class RunOut(Out):
    """What one own run made, beside what was predicted at that time."""

    at: datetime
    gpu: str
    gpu_count: int
    words: list[str]
    session_id: str
    measured_tokens_s: Decimal
    predicted_tokens_s: Decimal


class SshKeyIn(In):
    """A public SSH key, as in a .pub file."""

    public_key: Annotated[str, Field(max_length=4096)]


class SshKeyOut(Out):
    """The registered key."""

    code: str
    sentence: str
    fingerprint: str | None = None


class ApiKeyIn(In):
    """A key for a program, and the person who answers for it. People answer for themselves."""

    name: Annotated[str, Field(max_length=60)] = Field(examples=["atlas"])
    owner: Annotated[str, Field(max_length=90)] = Field(default="", examples=["U012AB3CD"])
    scopes: Annotated[list[str], Field(max_length=10)] = []
    days: Annotated[int, Field(ge=1, le=366)] = KEY_DAYS


class ApiKeyOut(Out):
    """A key without its secret."""

    id: str
    actor: str
    owner: str
    scopes: list[str]
    state: str
    created_at: datetime
    created_by: str
    expires_at: datetime
    last_used_at: datetime | None


class ApiKeyMade(Out):
    """A new key. `token` is shown this once."""

    code: str
    sentence: str
    key_id: str
    actor: str
    token: str
    expires_at: datetime
