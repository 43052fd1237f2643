"""Configuration files: TOML in, checked parts out."""

from flanp.config.reading import Config, Settings, build, default_text, load_config

__all__ = ["Config", "Settings", "build", "default_text", "load_config"]
