"""What `helm test` runs in the cluster: sends the calls of CALLS (JSON) to TARGET and compares the answers.

Each call is {path, status} and maybe body, code (of the error in the answer) and headers. Prints a line for each; exit
code 1 where an answer is another than was asked for. Python's standard library alone.
"""

import json
import os
import sys
import urllib.error
import urllib.request


def send(target, call):
    """The status, and the code of the error in the body or ''."""
    body = json.dumps(call.get("body", {})).encode()
    headers = {"Content-Type": "application/json", **call.get("headers", {})}
    request = urllib.request.Request(target + call["path"], body, headers, method="POST")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the cluster's own, whatever HTTP_PROXY says
    try:
        with opener.open(request, timeout=30) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    try:
        return status, json.loads(text)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        return status, ""


def main():
    """Sends all calls; gives the exit code."""
    wrong = 0
    for call in json.loads(os.environ["CALLS"]):
        status, code = send(os.environ["TARGET"], call)
        right = status == call["status"] and code == call.get("code", code)
        wrong += not right
        wanted = " ".join(filter(None, [str(call["status"]), call.get("code")]))
        print("ok  " if right else "WRONG", call["path"], f"wanted {wanted}, got {status} {code}".rstrip())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
