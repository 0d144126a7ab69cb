"""The page that hands a trace to a viewer: it opens the viewer, waits until that answers, and posts it the bytes.

The handshake is Perfetto's own (https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui): "PING" is
posted until "PONG" comes back, then `{perfetto: {buffer, title, fileName}}`. All is in one file, by a policy that
allows this script and this style alone, and nothing to be loaded from elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from typing import Final

_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 15vh auto; padding: 0 1rem; }
button { font: inherit; padding: .5rem 1rem; }
@media (prefers-color-scheme: dark) { body { background: #111418; color: #ddd; } }
"""
_SCRIPT: Final = """
"use strict";
const told = JSON.parse(document.getElementById("told").textContent);
const origin = new URL(told.ui).origin;
const state = document.getElementById("state");
const button = document.getElementById("open");
let viewer = null, buffer = null, timer = 0, isOver = false;
function say(text) { state.textContent = text; }
function end(result, text) {
  if (isOver) return;
  isOver = true;
  clearInterval(timer);
  button.hidden = true;
  say(text);
  fetch("done", {method: "POST", body: result, keepalive: true}).catch(() => {});
}
function post() {
  const name = told.name, message = {perfetto: {buffer: buffer, title: name, fileName: name}};
  viewer.postMessage(message, origin, [buffer]);
  end("handed-over", "The trace is in " + origin + ". This page can be closed.");
}
window.addEventListener("message", (event) => {
  if (isOver || viewer === null || event.source !== viewer || event.origin !== origin || event.data !== "PONG") return;
  if (buffer !== null) post();
});
function open_viewer() {
  viewer = window.open(told.ui);
  if (viewer === null) {
    button.hidden = false;
    say("The browser keeps new tabs closed until you ask for one.");
    return;
  }
  button.hidden = true;
  say("Waiting for " + origin + " ...");
  clearInterval(timer);
  timer = setInterval(() => { if (buffer !== null) viewer.postMessage("PING", origin); }, 100);
  setTimeout(() => end("no-answer", origin + " did not answer."), told.wait_s * 1000);
}
button.addEventListener("click", open_viewer);
fetch("trace").then((answer) => {
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.arrayBuffer();
}).then((bytes) => { buffer = bytes; }).catch(() => end("no-trace", "The trace could not be fetched."));
open_viewer();
"""


def _hash(text: str) -> str:
    return b64encode(hashlib.sha256(text.encode()).digest()).decode()


POLICY: Final = "; ".join(
    [
        "default-src 'none'",
        f"script-src 'sha256-{_hash(_SCRIPT)}'",
        f"style-src 'sha256-{_hash(_STYLE)}'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
"""The page's content security policy."""
_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def page(ui: str, name: str, wait_s: float) -> bytes:
    """The page for a viewer's address and a trace's name, which may hold anything."""
    told = json.dumps({"ui": ui, "name": name, "wait_s": wait_s}).translate(_ESCAPES)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>profkit open</title>'
        f'<style>{_STYLE}</style></head><body><h1>profkit</h1><p id="state" role="status">Opening the viewer ...</p>'
        '<button id="open" hidden>Open the viewer</button>'
        "<noscript><p>This page needs JavaScript to hand the trace over.</p></noscript>"
        f'<script type="application/json" id="told">{told}</script><script>{_SCRIPT}</script></body></html>'
    ).encode()
