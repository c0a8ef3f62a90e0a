"""Posts questions to a URL; this small server takes the answers and resumes the run.

Run it: python examples/webhook.py [URL], and answer in another terminal with the command it prints.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.request import Request, urlopen

from upcall import Run, Settings, Upcall, UpcallError, run_sync


def describe(run: Run) -> None:
    body = run.as_json() | {"reply_to": here}
    for url in sys.argv[1:]:
        urlopen(Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"}), timeout=10).close()
    for question in run.questions:
        print(f"{question.question} curl {here} -d '{json.dumps({question.id: 'Express'})}'", flush=True)


class Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:  # Anyone who reaches this address can answer: let nobody else in.
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            code, text = 200, run_sync(app.answer(run.id, json.loads(sent))).status.value
        except (UpcallError, ValueError) as error:  # Nothing was changed; the next answer may be better.
            code, text = 400, str(error)
        self.send_response(code)
        self.end_headers()
        self.wfile.write(f"{text}\n".encode())


server = HTTPServer(("127.0.0.1", 0), Answers)
here = f"http://127.0.0.1:{server.server_port}/"
app = Upcall(store="webhook.db", settings=Settings.read(models={"model": "demo"}))
describe(run := run_sync(app.start("Build me a user authentication system")))
while run.waiting:
    server.handle_request()
    describe(run := run_sync(app.get(run.id)))
