"""Model servers (OpenAI Chat Completions and Responses, Anthropic Messages): requests are relayed unchanged, and the
tool calls in the answers are judged by the tools of the request and repaired before the agent reads them."""
