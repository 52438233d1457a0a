"""A kubectl in front of one Homeport: it proxies to the operator Service ``scheduling/homeport-operator``, and no more.

    kubectl.py LOG URL ARGUMENTS...

Each call is a line of JSON in LOG: the arguments. Errors have the form that kubectl 1.36 gives them.
"""

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path

PROXY = "/api/v1/namespaces/scheduling/services/http:homeport-operator:operator/proxy"
SERVICE = {
    "metadata": {"name": "homeport-operator", "namespace": "scheduling"},
    "spec": {"ports": [{"name": "operator", "port": 8889}]},
}


def main() -> int:
    log, url, *given = sys.argv[1:]
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(json.dumps(given) + "\n")
    match given:
        case ["config", "view", "--minify", "-o", "jsonpath={..namespace}", *_]:
            print("machines", end="")
        case ["get", "services", "-A", "-l", "homeport.dev/pages=operator", "-o", "json", *_]:
            print(json.dumps({"items": [SERVICE]}))
        case ["get", "services", "-n", namespace, "-l", "homeport.dev/pages=operator", "-o", "json", *_]:
            print(json.dumps({"items": [SERVICE] if namespace == "scheduling" else []}))
        case ["get", "--raw", path, *_] if path.startswith(PROXY):
            return proxied(urllib.request.Request(url + path.removeprefix(PROXY)))
        case ["create", "--raw", path, "-f", "-", *_] if path.startswith(PROXY):
            return proxied(urllib.request.Request(url + path.removeprefix(PROXY), sys.stdin.buffer.read()))
        case _:
            print("error: unknown command", file=sys.stderr)
            return 1
    return 0


def proxied(request: urllib.request.Request) -> int:
    request.headers.clear()  # kubectl sends no Content-Type
    try:
        with urllib.request.urlopen(request) as answer:
            print(answer.read().decode(), end="")
    except urllib.error.HTTPError as error:
        status = json.loads(error.read())
        print(f"Error from server ({status['reason']}): {status['message']}", file=sys.stderr)
        return 1
    return 0


sys.exit(main())
