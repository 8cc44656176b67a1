"""The built-in demo collection: search the Python standard library. See the README beside this file."""

from __future__ import annotations

from rerank.collections.demo.collection import DemoCollection, summary

__all__ = ["DemoCollection", "summary"]
