"""What an agent host does with the proxy's answers (docs/agents.md). It needs nothing else of the package."""
