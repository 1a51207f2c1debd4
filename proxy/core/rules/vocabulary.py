"""The only words that repairs know: the fixed vocabulary of tool-call protocols, and ten verbs of reading tools.

Sources: OpenAI Chat Completions and Responses (`function`, `arguments`, `tool_calls`, `call_id`), Anthropic Messages
(`tool_use`, `input`, `name`), Google Gemini (`functionCall`, `args`), LangChain (`tool`, `tool_input`, `action`,
`action_input`), MCP (`method`, `params`, `tools/call`), Amazon Bedrock (`toolUse`, `toolUseId`), Python (`args`,
`kwargs`), OpenAPI and AWS SDKs (`request`, `body`, `data`, `payload`).
"""

from __future__ import annotations

from typing import Final

# Names of a call's arguments as a whole: a lone undeclared one is a wrapper.
WRAPPER_KEYS: Final = frozenset({"arguments", "args", "params", "parameters", "kwargs"})
# Names of the one parameter under which flat arguments may be put.
NEST_KEYS: Final = WRAPPER_KEYS | {"request", "body", "data", "payload", "input"}
# The envelope of a call: the keys of the tool's name, of the arguments, beside them, and around the call.
NAME_KEYS: Final = frozenset({"name", "function", "tool", "tool_name", "function_name", "action", "recipient_name"})
ARGUMENT_KEYS: Final = WRAPPER_KEYS | {
    "input", "tool_input", "action_input", "tool_args", "tool_arguments", "function_args", "function_arguments"
}  # fmt: skip
BESIDE_KEYS: Final = frozenset({"id", "type", "call_id", "index", "toolUseId", "jsonrpc"})
OUTER_KEYS: Final = frozenset(
    ["function", "function_call", "functionCall", "tool_call", "toolCall", "tool_calls", "tool_use", "toolUse",
     "tool_uses", "tool", "call"]
)  # fmt: skip
CALL_TYPES: Final = ("function", "function_call", "tool_call", "tool_use")
MCP_METHOD: Final = "tools/call"
# The keys that models and XML put around one value.
VALUE_KEY: Final = "value"
ITEM_KEY: Final = "item"

# Every name that has its own meaning. The renaming test neither replaces nor produces one.
PROTOCOL_WORDS: Final = frozenset().union(
    NEST_KEYS, NAME_KEYS, ARGUMENT_KEYS, BESIDE_KEYS, OUTER_KEYS, CALL_TYPES, {"method", VALUE_KEY, ITEM_KEY}
)

# The closed list of verbs that begin the name of a tool that only reads (docs/repair.md). It decides nothing but
# whether a null at an optional key is left out.
READING_VERBS: Final = frozenset(
    ["get", "list", "search", "find", "read", "fetch", "query", "describe", "count", "show"]
)
