"""Model servers (OpenAI Chat Completions and Responses, Anthropic Messages): what passes is relayed as it is, and the
tool calls in their answers are judged by the tools of the request and repaired before the agent reads them."""
