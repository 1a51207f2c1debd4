"""Names that other systems' documents give to what the config says by keys of its own: one table, for the hint at an
unknown key and for the page (docs/config.md, "Names of other systems")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# System -> its name -> how it is written here.
OTHER_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "Acode": {
        "retry": "`attempts: {max: 3}`",
        "max_attempts": "`attempts: {max: 3}`",
        "formatting": "`feedback: {max_chars: 2000, max_errors: 10, max_preview: 100}`",
        "max_message_length": "`feedback: {max_chars: 2000}`",
        "max_errors_shown": "`feedback: {max_errors: 10}`",
        "max_value_preview": "`feedback: {max_preview: 100}`",
    },
    "GoMind": {
        "validation_feedback_enabled": "`correct: {validation_feedback: on}`",
        "max_validation_retries": "`correct: {max_attempts: 2}`",
        "GOMIND_AGENT_MAX_RETRIES": "`resend: {max: 3}` (the same call), `correct: {max_attempts: 2}` (a corrected "
        "one), `attempts: {max: 3}` (the model's own tries)",
        "GOMIND_AGENT_USE_AI_CORRECTION": "`correct: {validation_feedback: on}`",
        "GOMIND_AGENT_RETRY_BACKOFF_MS": "`resend: {backoff: 1s}`",
        "GOMIND_SEMANTIC_RETRY_ENABLED": "`correct: {semantic_retry: on}`",
        "GOMIND_SEMANTIC_RETRY_MAX_ATTEMPTS": "`correct: {max_attempts: 2}`",
        "GOMIND_SEMANTIC_RETRY_INDEPENDENT_STEPS": "`correct: {independent_steps: on}`",
        "GOMIND_LLM_DEBUG_ENABLED": "`correction: {debug: {file: corrections.jsonl}}`",
    },
    "Compozy": {
        "llm": "`guidance: {dynamic_state: on}`, `caps: {default: 3}`, `finalize_output_retries: 2`",
        "enable_dynamic_prompt_state": "`guidance: {dynamic_state: on}`",
        "tool_call_caps": "`caps: {default: 3, overrides: {web_search: 5}}`",
    },
}


def find_other_name(name: str) -> str:
    """How a name of another system is written here, as a hint; '' for a name that none of them has."""
    found = (
        f"{system} calls it so; here it is {names[name]}" for system, names in OTHER_NAMES.items() if name in names
    )
    return next(found, "")
