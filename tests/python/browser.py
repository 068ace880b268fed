"""A browser for tests: headless Chromium, driven over WebDriver (www.w3.org/TR/webdriver2)."""

import base64
import json
import shutil
import subprocess
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"left": "\ue012", "up": "\ue013", "right": "\ue014", "down": "\ue015", "tab": "\ue004", "enter": "\ue007",
        "escape": "\ue00c"}


def available():
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


class Browser:
    """One session; `with Browser() as browser`. It can only reach files and, with `served`, 127.0.0.1."""

    def __init__(self, width=1360, height=900, dark=False, served=False, still=False):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                       text=True)
        try:
            self.base = f"http://127.0.0.1:{self.port()}"
            # A container has no sandbox for Chromium and little /dev/shm.
            hosts = "MAP * ~NOTFOUND" + (", EXCLUDE 127.0.0.1" if served else "")
            arguments = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                         "--hide-scrollbars", f"--host-resolver-rules={hosts}", "--force-color-profile=srgb",
                         f"--window-size={width},{height}"]
            if dark:
                arguments.append("--blink-settings=preferredColorScheme=0")
            if still:
                arguments.append("--force-prefers-reduced-motion")
            session = self.post("/session", {"capabilities": {"alwaysMatch": {
                "browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
                "goog:chromeOptions": {"binary": shutil.which("chromium"), "args": arguments}}}})
            self.base += "/session/" + session["sessionId"]
        except BaseException:
            self.driver.terminate()
            raise

    def port(self):
        for line in self.driver.stdout:
            if "successfully on port" in line:
                return int(line.split("port")[1].strip(" .\n"))
        raise RuntimeError("chromedriver did not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            urllib.request.urlopen(urllib.request.Request(self.base, method="DELETE"), timeout=20).close()
        finally:
            self.driver.terminate()
            self.driver.wait(20)

    def post(self, path, content):
        request = urllib.request.Request(self.base + path, json.dumps(content).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def open(self, url):
        self.post("/url", {"url": "about:blank"})  # changing only the fragment would not reload the page
        self.post("/url", {"url": url})

    def run(self, script, *arguments):
        """Runs a script, the body of a function, and returns its result."""
        return self.post("/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script, *arguments):
        """Runs the body of an async function and returns its result."""
        wrapped = f"const done = arguments[arguments.length - 1]; (async () => {{ {script} }})().then(done)"
        return self.post("/execute/async", {"script": wrapped, "args": list(arguments)})

    def find(self, css):
        return self.post("/element", {"using": "css selector", "value": css})[ELEMENT]

    def enter(self, css):
        """Directs all further commands to the document in that frame."""
        self.post("/frame", {"id": {ELEMENT: self.find(css)}})

    def keep_downloads(self, folder):
        self.post("/chromium/send_command", {"cmd": "Browser.setDownloadBehavior",
                                             "params": {"behavior": "allow", "downloadPath": str(folder)}})

    def text(self, css):
        return self.run("return document.querySelector(arguments[0]).innerText", css)

    def click(self, css):
        self.post(f"/element/{self.find(css)}/click", {})

    def pointer(self, x, y, click=False):
        """Moves the pointer to a point of the window and clicks there."""
        steps = [{"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}]
        if click:
            steps += [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        self.post("/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": steps}]})

    def press(self, *keys):
        steps = []
        for key in keys:
            value = KEYS.get(key, key)
            steps += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self.post("/actions", {"actions": [{"type": "key", "id": "keys", "actions": steps}]})

    def errors(self):
        """The console's warnings and errors since the last call, except advice on how tests read pixels."""
        return [entry["message"] for entry in self.post("/se/log", {"type": "browser"})
                if entry["level"] in ("WARNING", "SEVERE") and "willReadFrequently" not in entry["message"]]

    def print(self, path):
        """Prints the page to a PDF on A4."""
        path.write_bytes(base64.b64decode(self.post("/print", {"page": {"width": 21.0, "height": 29.7},
                                                                 "background": True})))

    def resize(self, width, height):
        """Sets the inner size of the window, as a phone of that size has it."""
        self.post("/chromium/send_command_and_get_result", {"cmd": "Emulation.setDeviceMetricsOverride", "params": {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 800}})

    def screenshot(self, path):
        with urllib.request.urlopen(self.base + "/screenshot", timeout=60) as answer:
            path.write_bytes(base64.b64decode(json.load(answer)["value"]))
