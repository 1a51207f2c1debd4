"""A hook that lets no call through whose unit is kelvin: what a rule about arguments has to see of corrected calls."""

from __future__ import annotations

from proxy.hooks import Call, Hook, Refuse


class NoKelvin(Hook):
    """Refuses calls by an argument."""

    async def before_decision(self, call: Call) -> Refuse | None:
        """Decides about every call before it is validated."""
        arguments = call.arguments
        kelvin = isinstance(arguments, dict) and arguments.get("unit") == "kelvin"
        return Refuse("no kelvin here") if kelvin else None
