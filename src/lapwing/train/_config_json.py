"""A config and JSON: read the config of a run, and list what differs from it now."""

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from lapwing.journal import from_json, modern_settings, to_json

from ._config import ConfigError

# What may change when a run is resumed without changing its numbers.
HARMLESS = ("checkpoint", "laps_every", "tensorboard", "watch")

Config = TypeVar("Config")


def config_from(kind: type[Config], settings: Mapping[str, Any]) -> Config:
    """The config with these options, read from JSON. Missing options have their defaults.

    >>> from lapwing.train import FitConfig
    >>> config_from(FitConfig, {"steps": 5, "rollback": {"times": 1}}).rollback.times
    1
    >>> config_from(FitConfig, {"stepz": 5})
    Traceback (most recent call last):
    lapwing.train._config.ConfigError: 'stepz' is not an option any more
    >>> config_from(FitConfig, {"steps": "many"})
    Traceback (most recent call last):
    lapwing.train._config.ConfigError: the option 'steps' should be int, but the run has 'many'
    """
    settings, hints = present_options(settings), typing.get_type_hints(kind)
    known = {field.name for field in dataclasses.fields(typing.cast(Any, kind))}
    if unknown := [name for name in settings if name not in known]:
        raise ConfigError(f"{', '.join(map(repr, unknown))} is not an option any more")
    return kind(**{name: _option(name, hints[name], value) for name, value in settings.items()})


def present_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Options of an earlier version by their present names.

    >>> present_options({"stop": {"rising": "eval_accuracy", "rising_patience": 500}})
    {'stop': {'patience': 500}, 'best': 'eval_accuracy', 'mode': 'max'}
    """
    settings = modern_settings(settings)
    stop = settings.get("stop")
    if isinstance(stop, Mapping) and "rising" in stop:
        rest = {name: value for name, value in stop.items() if not name.startswith("rising")}
        settings["stop"] = rest
        if stop.get("rising_patience"):
            settings["stop"] = {**rest, "patience": stop["rising_patience"]}
            settings |= {"best": stop["rising"], "mode": "max"}
    return settings


def with_defaults(settings: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """The options of a run, by their present names; one that it did not have yet has its default.

    >>> from lapwing.train import FitConfig
    >>> with_defaults({"steps": 5}, FitConfig())["best"]
    'loss'
    """
    complete = present_options(settings)
    for each in dataclasses.fields(config):
        if each.name in complete:
            if dataclasses.is_dataclass(now := getattr(config, each.name)) and isinstance(
                complete[each.name], Mapping
            ):
                complete[each.name] = with_defaults(complete[each.name], now)
        elif each.default is not dataclasses.MISSING:
            complete[each.name] = settings_of(each.default)
        elif each.default_factory is not dataclasses.MISSING:
            complete[each.name] = settings_of(each.default_factory())
    return complete


def settings_of(config: Any) -> Any:
    """A config as JSON gives it back."""
    return from_json(to_json(config))


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The options that differ, by name, except those that do not change the numbers of a run.

    >>> changes({"clip": 0.1, "stop": {"below": 1.0}, "laps_every": 3}, {"clip": 0.2, "stop": {"below": 2.0}})
    {'clip': (0.1, 0.2), 'stop.below': (1.0, 2.0)}
    """
    a, b = _flat(old), _flat(new)
    names = [name for name in {**a, **b} if name.partition(".")[0] not in HARMLESS]
    return {name: (a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)}


def allowed_changes(
    old: Mapping[str, Any], new: Mapping[str, Any], *, allow: bool
) -> dict[str, tuple[Any, Any]]:
    """The same; raises `ConfigError` if options differ and that is not allowed."""
    different = changes(old, new)
    if different and not allow:
        raise ConfigError(
            f"the config is not the one of the checkpoint: {in_words(different)}; to resume with the new one, give "
            "--allow-change (in Python: allow_change=True)"
        )
    return different


def in_words(different: Mapping[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{name} {old} → {new}" for name, (old, new) in different.items())


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def _option(name: str, hint: Any, value: Any) -> Any:
    try:
        return _value(hint, value)
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        kind = hint.__name__ if isinstance(hint, type) else str(hint)
        raise ConfigError(f"the option {name!r} should be {kind}, but the run has {value!r:.80}") from None


def _value(hint: Any, value: Any) -> Any:
    """A field from JSON as its own type. **Raises** a `TypeError` or a `ValueError` if it is of another one."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return config_from(typing.cast(type, hint), _of(Mapping, value))
    if origin is tuple:
        items = _of(list, value)
        hints = [inner[0]] * len(items) if inner[-1:] == (Ellipsis,) else inner
        return tuple(_value(each, item) for each, item in zip(hints, items, strict=True))
    if origin in (typing.Union, types.UnionType):
        return _first_fitting(inner, value)
    if origin is typing.Literal and value not in inner:
        raise ValueError
    if hint is float:
        return float(_of((int, float), value))
    if hint in (int, bool, str, types.NoneType):
        return _of(hint, value)
    if isinstance(hint, type) and not isinstance(value, hint):
        return typing.cast(Any, hint)(value)  # A path, an enum.
    return value


def _of(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError
    return value


def _first_fitting(hints: Iterable[Any], value: Any) -> Any:
    for hint in hints:
        try:
            return _value(hint, value)
        except (TypeError, ValueError):
            pass
    raise TypeError
