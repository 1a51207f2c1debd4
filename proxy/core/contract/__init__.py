"""The retry contract: policy, attempts, escalation, call caps, containers, tool names."""
