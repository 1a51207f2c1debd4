"""Texts about tools for agents, before they call: prompt text, vendor exports, and the paths that serve both."""
