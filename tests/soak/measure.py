"""Memory, threads and descriptors of a process, sampled while something long runs."""

import os
import pathlib
import threading


def now(pid):
    """(MB of memory that is in RAM and not of files, threads, descriptors)"""
    status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["RssAnon"].split()[0]) / 1024, int(status["Threads"]), len(os.listdir(f"/proc/{pid}/fd"))


class Watch:
    """with Watch(pid, seconds) as watch: … samples every few seconds."""

    def __init__(self, pid, seconds):
        self.pid, self.seconds, self.samples, self.ended = pid, seconds, [], threading.Event()
        self.thread = threading.Thread(target=self.sample)

    def sample(self):
        while not self.ended.wait(self.seconds):
            self.samples.append(now(self.pid))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def check_flat(self, allowed=4.0):
        """Memory must not grow after the first fifth, by which time every buffer has been used. Returns MB at both ends."""
        memory = [sample[0] for sample in self.samples]
        early, late = memory[len(memory) // 5:], memory[-max(1, len(memory) // 10):]
        grown = min(late) - min(early)
        assert not grown > allowed, f"memory grew from {min(early):.1f} to {min(late):.1f} MB"
        return {"MB after a fifth": round(early[0], 1), "MB at the end": round(memory[-1], 1), "MB at most": round(max(memory), 1),
                "threads at most": max(sample[1] for sample in self.samples),
                "descriptors at most": max(sample[2] for sample in self.samples)}
