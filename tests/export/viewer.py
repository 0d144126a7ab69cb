"""A viewer for tests: speaks Perfetto's handshake on a loopback port of its own, and keeps what it is given."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = b"""<!doctype html><title>viewer</title><script>
window.addEventListener("message", (event) => {
  if (event.source !== window.opener) return;
  if (event.data === "PING") { event.source.postMessage("PONG", event.origin); return; }
  const told = event.data.perfetto;
  fetch("/got?" + new URLSearchParams({title: told.title, file: told.fileName, from: event.origin}),
        {method: "POST", body: told.buffer});
});
</script>"""


class Viewer(ThreadingHTTPServer):
    """`got` holds the bytes of each trace that came, `asked` the paths of each; `to` sends every visitor elsewhere."""

    daemon_threads = True

    def __init__(self, page: bytes = PAGE, to: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.page, self.to = page, to
        self.got: list[bytes] = []
        self.asked: list[str] = []
        self.came = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Viewer

    def do_GET(self) -> None:
        self.send_response(302 if self.server.to else 200)
        self.send_header("Content-Type", "text/html")
        if self.server.to:
            self.send_header("Location", self.server.to)
        self.end_headers()
        self.wfile.write(self.server.page)

    def do_POST(self) -> None:
        self.server.asked.append(self.path)
        self.server.got.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.server.came.set()

    def log_message(self, *args: object) -> None: ...


@contextmanager
def viewer(**how: object) -> Iterator[Viewer]:
    server = Viewer(**how)  # type: ignore[arg-type]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
