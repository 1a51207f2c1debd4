"""The pure part of the plugin: what is masked, cut and said of an answer."""
