"""How many questions may be asked, and how many tokens they may cost: of one call, in one conversation, in one hour.

A conversation that is known by its client's address alone may be several users', so it has no budget of its own. Tokens
are known once an answer is there: a question may go over the budget, the next one is not asked. In the shared store
they are counted in thousands, what is left of a thousand in this process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core.contract.attempts import hash_conversation
from proxy.core.contract.correction import BudgetKind, CorrectionBudget
from proxy.core.model.values import Conversation, Rung
from proxy.interfaces import Services

# How long a conversation's questions are counted after its last one; an hour; in seconds.
_CONVERSATION: Final = 86_400.0
_HOUR: Final = 3600.0
_THOUSAND: Final = 1000


class Budgets:
    """The budgets of one endpoint. `warn` is told once an hour of each budget that is used up."""

    def __init__(self, budget: CorrectionBudget, services: Services, warn: Callable[[BudgetKind], None]) -> None:
        self._budget = budget
        self._services = services
        self._warn = warn
        self._warned: dict[BudgetKind, int] = {}
        self._rest: tuple[int, int] = (0, 0)  # an hour, and its tokens that make no thousand yet

    async def take(self, conversation: Conversation, asked: int) -> BudgetKind | None:
        """Takes a question out of every budget; the one that is used up, where one is: then no other loses a question.
        `asked`: the questions asked about this call so far."""
        spent = await self._find_spent(conversation, asked)
        if spent is not None and self._warned.get(spent) != self._hour():
            self._warned[spent] = self._hour()
            self._warn(spent)
        return spent

    async def _find_spent(self, conversation: Conversation, asked: int) -> BudgetKind | None:
        budget, store = self._budget, self._services.store
        if asked >= budget.per_call:
            return BudgetKind.PER_CALL
        if budget.tokens_per_hour is not None and await self._tokens() >= budget.tokens_per_hour:
            return BudgetKind.TOKENS_PER_HOUR
        key = f"{hash_conversation(conversation)}/corrections"
        is_known = conversation.rung is not Rung.ADDRESS
        if is_known and await store.reserve(key, budget.per_conversation, _CONVERSATION) is None:
            return BudgetKind.PER_CONVERSATION
        if await store.reserve(f"corrections/{self._hour()}", budget.per_hour, _HOUR) is None:
            if is_known:
                await store.release(key)
            return BudgetKind.PER_HOUR
        return None

    async def spend_tokens(self, count: int) -> None:
        """Counts the tokens of one question and its answer."""
        if self._budget.tokens_per_hour is None or count <= 0:
            return
        hour, rest = self._rest
        thousands, rest = divmod(count + (rest if hour == self._hour() else 0), _THOUSAND)
        self._rest = self._hour(), rest
        most = self._budget.tokens_per_hour // _THOUSAND + 1
        for _ in range(min(thousands, most)):
            await self._services.store.reserve(self._tokens_key(), most, _HOUR)

    async def _tokens(self) -> int:
        hour, rest = self._rest
        thousands = await self._services.store.count_taken(self._tokens_key())
        return thousands * _THOUSAND + (rest if hour == self._hour() else 0)

    def _tokens_key(self) -> str:
        return f"corrections/{self._hour()}/tokens"

    def _hour(self) -> int:
        return int(self._services.clock.wall() // _HOUR)
