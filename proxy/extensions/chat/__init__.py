"""Model servers (OpenAI Chat Completions and Responses, Anthropic Messages). Requests are relayed unchanged. The tool
calls in the answers are validated against the tools of the request, and repaired before the agent reads them."""
