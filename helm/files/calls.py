"""What `helm test` runs in the cluster: waits for the released config, sends calls and compares the answers.

First every pod that the name in PODS leads to has to serve the config mounted at CONFIG, within WAIT seconds: kubelet
brings a change into a pod late, and calls before that would judge the config of yesterday. Then the calls of CALLS
(JSON) go to TARGET; each is {path, status} and maybe body, code (of the error in the answer) and headers. AUTHORITY is
the file of a private authority that has signed TARGET's certificate. Prints a line for each; exit code 1 where an
answer is another than was asked for. Python's standard library, and the proxy's command.
"""

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

SERVED = re.compile(r'^toolproxy_config_info\{.*files_hash="([0-9a-f]*)"', re.MULTILINE)
UNTRUSTED = "its certificate is not trusted: name the authority that has signed it in the value test.authority"
# The cluster's own, whatever HTTP_PROXY says.
OPENER = urllib.request.build_opener(
    urllib.request.ProxyHandler({}),
    urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=os.environ.get("AUTHORITY"))),
)


def read_released():
    """The hash of the released config, as the proxy itself works it out."""
    command = [sys.executable, "-m", "proxy", "check", "--config-only", "--digest", os.environ["CONFIG"]]
    return subprocess.check_output(command, text=True).strip()  # noqa: S603 - our own command line


def find_behind(released):
    """The pods that serve another config, or do not answer, by their address; 'no pod' where the name has none."""
    host, _, port = os.environ["PODS"].rpartition(":")
    try:
        found = sorted({entry[4][0] for entry in socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)})
    except OSError:
        found = []
    behind = [] if found else ["no pod"]
    for address in found:
        try:
            url = f"http://[{address}]:{port}/metrics" if ":" in address else f"http://{address}:{port}/metrics"
            with OPENER.open(url, timeout=5) as answer:
                served = set(SERVED.findall(answer.read().decode()))
        except (OSError, ValueError):
            served = set()
        if served != {released}:
            behind.append(address)
    return behind


def await_config():
    """Waits until all pods serve the released config; gives whether they do."""
    released, until = read_released(), time.monotonic() + float(os.environ["WAIT"])
    while behind := find_behind(released):
        if time.monotonic() > until:
            print("WRONG config: not served yet by", ", ".join(behind), "(released:", released + ")")
            return False
        time.sleep(1)
    print("ok   config", released)
    return True


def send(target, call):
    """The status, and the code of the error in the body or ''."""
    body = json.dumps(call.get("body", {})).encode()
    headers = {"Content-Type": "application/json", **call.get("headers", {})}
    request = urllib.request.Request(target + call["path"], body, headers, method="POST")
    try:
        with OPENER.open(request, timeout=30) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    except urllib.error.URLError as error:
        trusted = not isinstance(error.reason, ssl.SSLCertVerificationError)
        return 0, f"no answer: {error.reason}" if trusted else f"{UNTRUSTED} ({error.reason.verify_message})"
    try:
        return status, json.loads(text)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        return status, ""


def main():
    """Waits, sends all calls; gives the exit code."""
    wrong = 0 if "PODS" not in os.environ or await_config() else 1
    for call in json.loads(os.environ["CALLS"]):
        status, code = send(os.environ["TARGET"], call)
        right = status == call["status"] and code == call.get("code", code)
        wrong += not right
        wanted = " ".join(filter(None, [str(call["status"]), call.get("code")]))
        print("ok  " if right else "WRONG", call["path"], f"wanted {wanted}, got {status} {code}".rstrip())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
