"""The Python kernel of a code context.

Commands come as JSON lines on descriptor 3, events leave as JSON lines on 4;
see package kernels. What child processes write to 1 and 2 the daemon reads
itself. With IPython the code runs in its shell, without it in a plain
namespace; the events are the same.
"""
import ast, base64, builtins, io, json, os, signal, sys, threading, time, traceback
from threading import get_ident

CHUNK = 32768  # characters of output in one event
PAUSE = 0.01  # seconds between events of many short lines
LIMIT = 12 << 20  # bytes of one event; a larger result is left out

FIELDS = {
    "text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg",
    "image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex",
    "application/json": "json", "application/javascript": "javascript", "e2b/data": "data", "e2b/chart": "chart",
}


class Channel:
    """Writes events whole: an interrupt waits until the line is out."""

    def __init__(self, fd):
        self.fd, self.busy, self.pending, self.owner = fd, 0, False, os.getpid()

    def send(self, event):
        """Sends an event after the output that came before it."""
        with self:
            for stream in STREAMS:
                stream.flush()
            self.write(event)

    def write(self, event):
        try:
            line = json.dumps(event, default=str, allow_nan=False)
        except (ValueError, TypeError, RecursionError):
            line = json.dumps(plain(event), default=str)
        data = line.encode("utf-8", "replace") + b"\n"
        if len(data) > LIMIT:
            data = json.dumps({"type": "stderr", "text": "[a result of %d bytes was left out]\n" % len(data)}).encode() + b"\n"
        with self:
            view = memoryview(data)
            while view:
                view = view[os.write(self.fd, view):]

    def __enter__(self):
        if get_ident() == MAIN:  # the only thread that signals come to
            self.busy += 1
        LOCK.acquire()

    def __exit__(self, *exc):
        LOCK.release()
        if get_ident() == MAIN:
            self.busy -= 1
            if self.pending and not self.busy:
                self.pending = False
                raise KeyboardInterrupt


def plain(value):
    """A value without what JSON cannot say: NaN and infinities become null."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (str, int, bool)) or value is None:
        return value
    return str(value)


class Output(io.TextIOBase):
    """sys.stdout and sys.stderr: a line goes out when it ends, as on a terminal,
    but of many lines that end at once several go out together."""

    encoding, errors = "utf-8", "replace"

    def __init__(self, name, fd):
        self.name, self.fd = "<%s>" % name, fd
        self.kind, self.pending, self.last = name, "", 0
        self.buffer = Raw(self)

    def writable(self):
        return True

    def isatty(self):
        return False

    def fileno(self):
        return self.fd

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not " + type(text).__name__)
        if os.getpid() != CHANNEL.owner:  # a forked child has no place among the events
            data = memoryview(text.encode("utf-8", "replace"))
            while data:
                data = data[os.write(self.fd, data):]
            return len(text)
        with CHANNEL:
            for other in STREAMS:
                if other is not self and other.pending:
                    other.flush()
            self.pending += text
            if len(self.pending) > CHUNK or "\n" in text and time.monotonic() - self.last > PAUSE:
                self.flush()
            elif "\n" in text:
                LATE.set()
        return len(text)

    def flush(self):
        if os.getpid() != CHANNEL.owner:
            return
        with CHANNEL:
            text, self.pending = self.pending, ""
            if text:
                self.last = time.monotonic()
            for i in range(0, len(text), CHUNK):
                CHANNEL.write({"type": self.kind, "text": text[i:i + CHUNK], "timestamp": time.time()})


def flush_late():
    """Sends what was held back a moment ago. A thread runs it."""
    while True:
        LATE.wait()
        time.sleep(PAUSE)
        LATE.clear()
        for stream in STREAMS:
            stream.flush()


def flush_before(event, args):
    """An audit hook: what was printed comes before what a child process prints.

    The two go different ways, so the child waits until the first has arrived,
    which the daemon says with an empty line.
    """
    if event not in SPAWNS or os.getpid() != CHANNEL.owner:
        return
    for stream in STREAMS:
        stream.flush()
    if RUNNING and get_ident() == MAIN:
        CHANNEL.send({"type": "sync"})
        os.read(3, 1)


SPAWNS = {"os.system", "os.posix_spawn", "os.exec", "os.fork", "subprocess.Popen", "pty.spawn"}


class Raw(io.RawIOBase):
    """The bytes below a stream."""

    def __init__(self, text):
        self.text = text

    def writable(self):
        return True

    def fileno(self):
        return self.text.fd

    def write(self, data):
        data = bytes(data)
        self.text.write(data.decode("utf-8", "replace"))
        return len(data)


def result(data, main):
    """Sends a MIME bundle as one result."""
    event, extra = {"type": "result", "is_main_result": main}, {}
    for mime, value in data.items():
        if isinstance(value, bytes):
            value = base64.b64encode(value).decode()
        elif isinstance(value, str) and mime in ("image/png", "image/jpeg", "application/pdf"):
            value = value.strip()
        if mime == "text/plain" and isinstance(value, str) and len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        if mime in FIELDS:
            event[FIELDS[mime]] = value
        else:
            extra[mime] = value
    if extra:
        event["extra"] = extra
    CHANNEL.send(event)


def failure(kind, value, lines):
    CHANNEL.send({"type": "error", "name": kind.__name__ if isinstance(kind, type) else str(kind),
                  "value": shown(value), "traceback": "\n".join(lines)})


def shown(value):
    try:
        return str(value)
    except Exception as err:
        return "<str() failed: %s>" % type(err).__name__


# Values as data.

def extras(obj):
    """What is known of a value beyond how it looks."""
    out = {}
    try:
        pandas = sys.modules.get("pandas")
        if pandas is not None and isinstance(obj, getattr(pandas, "DataFrame", ())):
            out["e2b/data"] = {str(k): [cell(v) for v in column] for k, column in obj.to_dict(orient="list").items()}
        figure = sys.modules.get("matplotlib.figure")
        if figure is not None and isinstance(obj, figure.Figure):
            chart = chart_of(obj)
            if chart:
                out["e2b/chart"] = chart
    except Exception:
        pass  # the value is shown without it
    return out


def cell(value):
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if hasattr(value, "isoformat"):
        text = value.isoformat()
        return None if text == "NaT" else text
    if hasattr(value, "item"):
        return cell(value.item())
    return str(value)


def chart_of(fig):
    charts = [c for c in map(axes_chart, fig.axes) if c]
    if not charts:
        return None
    if len(charts) == 1:
        if not charts[0]["title"] and fig._suptitle:
            charts[0]["title"] = fig._suptitle.get_text()
        return charts[0]
    title = fig._suptitle.get_text() if fig._suptitle else None
    return {"type": "superchart", "title": title, "elements": charts}


def axes_chart(ax):
    from matplotlib import collections, patches
    title = ax.get_title() or None
    wedges = [p for p in ax.patches if isinstance(p, patches.Wedge)]
    bars = [c for c in ax.containers if type(c).__name__ == "BarContainer"]
    points = [c for c in ax.collections if isinstance(c, collections.PathCollection)]
    if wedges:
        labels = [t.get_text() for t in ax.texts]
        named = [w.get_label() for w in wedges]
        pick = lambda i: named[i] if named[i] and not named[i].startswith("_") else (labels[i] if i < len(labels) else "")
        return {"type": "pie", "title": title, "elements": [
            {"label": pick(i), "angle": float(abs(w.theta2 - w.theta1)), "radius": float(w.r)} for i, w in enumerate(wedges)]}
    if bars:
        return dict({"type": "bar", "title": title, "elements": bar_elements(ax, bars)}, **labels_of(ax))
    if is_box(ax):
        return dict({"type": "box_and_whisker", "title": title, "elements": box_elements(ax)}, **labels_of(ax))
    if points:
        return dict({"type": "scatter", "title": title, "elements": [
            {"label": name_of(c), "points": [[cell(x), cell(y)] for x, y in c.get_offsets().tolist()]} for c in points]},
            **scales_of(ax))
    if ax.lines:
        return dict({"type": "line", "title": title, "elements": [
            {"label": name_of(l), "points": [[cell(x), cell(y)] for x, y in zip(l.get_xdata(), l.get_ydata())]} for l in ax.lines]},
            **scales_of(ax))
    if ax.collections or ax.images or ax.patches:
        return {"type": "unknown", "title": title, "elements": []}
    return None


def name_of(artist):
    label = str(artist.get_label() or "")
    return "" if label.startswith("_") else label


def unit_of(label):
    if "(" in label and label.rstrip().endswith(")"):
        return label.rstrip()[label.rindex("(") + 1:-1]
    return None


def labels_of(ax):
    x, y = ax.get_xlabel(), ax.get_ylabel()
    return {"x_label": x or None, "y_label": y or None, "x_unit": unit_of(x), "y_unit": unit_of(y)}


def scales_of(ax):
    from matplotlib import dates
    out = labels_of(ax)
    for name, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
        ticks = [cell(t) for t in axis.get_ticklocs()]
        scale = axis.get_scale()
        if isinstance(axis.get_converter() if hasattr(axis, "get_converter") else axis.converter, (dates.DateConverter, dates._SwitchableDateConverter)):
            scale, ticks = "datetime", [dates.num2date(t).isoformat() for t in axis.get_ticklocs()]
        elif type(axis.get_major_formatter()).__name__ == "StrCategoryFormatter":
            scale = "categorical"
        out[name + "_ticks"] = ticks
        out[name + "_tick_labels"] = [t.get_text() for t in axis.get_ticklabels()]
        out[name + "_scale"] = scale
    return out


def bar_elements(ax, containers):
    out = []
    for i, c in enumerate(containers):
        group = c.get_label() if c.get_label() and not str(c.get_label()).startswith("_") else ""
        flat = getattr(c, "orientation", "vertical") == "horizontal"
        axis = ax.yaxis if flat else ax.xaxis
        names = {round(float(t), 6): l.get_text() for t, l in zip(axis.get_ticklocs(), axis.get_ticklabels())}
        for b in c.patches:
            middle = b.get_y() + b.get_height() / 2 if flat else b.get_x() + b.get_width() / 2
            own = str(b.get_label() or "")
            label = names.get(round(float(middle), 6)) or ("" if own.startswith("_") else own) or "%g" % middle
            out.append({"label": label, "group": group, "value": cell(b.get_width() if flat else b.get_height())})
    return out


def is_box(ax):
    """boxplot draws lines only: for each box its five points, two whiskers and caps, the median."""
    return sum(1 for l in ax.lines if len(l.get_xdata()) == 5) > 0 and len(ax.lines) >= 6 and not ax.collections


def box_elements(ax):
    names = {round(float(t), 6): l.get_text() for t, l in zip(ax.get_xticks(), ax.get_xticklabels())}
    out = []
    for box in (l for l in ax.lines if len(l.get_xdata()) == 5):
        xs, ys = [float(v) for v in box.get_xdata()], [float(v) for v in box.get_ydata()]
        left, right, middle = min(xs), max(xs), (min(xs) + max(xs)) / 2
        q1, q3 = min(ys), max(ys)
        e = {"label": names.get(round(middle, 6), ""), "min": q1, "first_quartile": q1, "median": None,
             "third_quartile": q3, "max": q3, "outliers": []}
        for l in ax.lines:
            lx, ly = [float(v) for v in l.get_xdata()], [float(v) for v in l.get_ydata()]
            if l is box or not lx or min(lx) < left - 1e-9 or max(lx) > right + 1e-9:
                continue
            if l.get_linestyle() == "None":
                e["outliers"] = ly
            elif len(lx) == 2 and lx[0] == lx[1]:
                e["min"], e["max"] = min([e["min"]] + ly), max([e["max"]] + ly)
            elif len(lx) == 2 and q1 <= ly[0] == ly[1] <= q3 and abs(lx[0] - left) < 1e-9:
                e["median"] = ly[0]
        out.append(e)
    return out


# The two ways to run code.

class Notebook:
    """Code runs in IPython's shell."""

    def __init__(self):
        os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        from IPython.core.displayhook import DisplayHook
        from IPython.core.displaypub import DisplayPublisher
        from IPython.core.formatters import DisplayFormatter
        from IPython.core.interactiveshell import InteractiveShell

        class Publisher(DisplayPublisher):
            def publish(self, data, *args, **more):
                result(data, False)

            def clear_output(self, wait=False):
                pass

        class Hook(DisplayHook):
            def write_output_prompt(self):
                pass

            def write_format_data(self, format_dict, md_dict=None):
                self.bundle = format_dict

            def finish_displayhook(self):
                bundle, self.bundle = getattr(self, "bundle", None), None
                if bundle:
                    result(bundle, True)

        class Formatter(DisplayFormatter):
            def format(self, obj, include=None, exclude=None):
                data, meta = super().format(obj, include=include, exclude=exclude)
                return dict(data, **extras(obj)), meta

        class Shell(InteractiveShell):
            def init_display_formatter(self):
                self.display_formatter = Formatter(parent=self)
                self.configurables.append(self.display_formatter)

            def _showtraceback(self, etype, evalue, stb):
                failure(etype, evalue, stb)

            def showsyntaxerror(self, *args, **more):
                self.told = True
                super().showsyntaxerror(*args, **more)

            def showtraceback(self, *args, **more):
                kind, value = sys.exc_info()[:2]
                if kind is SystemExit or isinstance(value, SystemExit):
                    failure(kind, value, ["SystemExit: " + shown(value)])
                    return
                super().showtraceback(*args, **more)

            def enable_gui(self, gui=None):
                pass

        Shell.displayhook_class, Shell.display_pub_class = Hook, Publisher
        from traitlets.config import Config
        config = Config()
        config.HistoryManager.enabled = False
        config.InteractiveShell.cache_size = 1000
        config.InteractiveShell.xmode = "Context"
        config.InteractiveShell.colors = "NoColor"
        self.shell = Shell.instance(config=config)
        self.shell.ask_exit = lambda: None
        self.namespace = self.shell.user_ns
        # Imported when the first code runs otherwise.
        self.shell.run_cell("1;", silent=True)

    def run(self, code):
        self.shell.run_cell(code, store_history=True)


class Plain:
    """Code runs in a namespace, and the last expression is the result."""

    def __init__(self):
        os.environ.setdefault("MPLBACKEND", "agg")
        self.namespace = {"__name__": "__main__", "__builtins__": builtins, "display": self.display}
        self.count, self.loop = 0, None

    def display(self, *values, **kw):
        for value in values:
            result(value if kw.get("raw") else bundle(value), False)

    def run(self, code):
        self.count += 1
        name = "<cell %d>" % self.count
        import linecache
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        try:
            self.execute(code, name)
        except BaseException as err:
            tb = err.__traceback__
            while tb is not None and tb.tb_frame.f_code.co_filename != name:
                tb = tb.tb_next
            lines = traceback.format_exception(type(err), err, tb)
            failure(type(err), err, ["".join(lines).rstrip("\n")])

    def execute(self, code, name):
        tree = ast.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";") else None
        if tree.body:
            self.step(compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        value = None
        if last is not None:
            value = self.step(compile(ast.Expression(last.value), name, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        if value is not None:
            self.namespace["_"] = value
            result(bundle(value), True)
        self.figures(value)

    def step(self, code):
        value = eval(code, self.namespace)
        if code.co_flags & 0x80:  # a coroutine: there is an await at the top
            import asyncio
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
                asyncio.set_event_loop(self.loop)
            value = self.loop.run_until_complete(value)
        return value

    def figures(self, shown_already):
        plot = sys.modules.get("matplotlib.pyplot")
        if plot is None:
            return
        for number in plot.get_fignums():
            fig = plot.figure(number)
            if fig is not shown_already:
                result(bundle(fig), False)
        plot.close("all")


METHODS = {
    "_repr_html_": "text/html", "_repr_markdown_": "text/markdown", "_repr_svg_": "image/svg+xml", "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg", "_repr_pdf_": "application/pdf", "_repr_latex_": "text/latex", "_repr_json_": "application/json",
    "_repr_javascript_": "application/javascript",
}


def bundle(value):
    """How a value looks, by MIME type."""
    out = {"text/plain": repr(value)}
    if isinstance(value, type):
        return out
    for method, mime in METHODS.items():
        try:
            data = getattr(value, method, None)
            data = data() if data is not None else None
        except Exception:
            continue
        if isinstance(data, tuple):
            data = data[0]
        if data is not None:
            out[mime] = data
    try:
        more = getattr(value, "_repr_mimebundle_", None)
        more = more() if more is not None else None
        out.update(more[0] if isinstance(more, tuple) else more or {})
    except Exception:
        pass  # the value is shown without it
    figure = sys.modules.get("matplotlib.figure")
    if figure is not None and isinstance(value, figure.Figure):
        data = io.BytesIO()
        value.savefig(data, format="png", bbox_inches="tight")
        out["image/png"] = data.getvalue()
    out.update(extras(value))
    return out


# The life of the kernel.

RUNNING = False


def on_interrupt(signum, frame):
    if not RUNNING:
        return
    if CHANNEL.busy:
        CHANNEL.pending = True
    else:
        raise KeyboardInterrupt


def on_renew(signum, frame):
    """The machine is a copy: nothing random may be as in the other."""
    random = sys.modules.get("random")
    if random is not None:
        random.seed()
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()
    ssl = sys.modules.get("ssl")
    if ssl is not None:
        ssl.RAND_add(os.urandom(48), 48.0)


def apply(change):
    """Changes the environment and gives what was there before."""
    before = {}
    for name, value in change.items():
        before[name] = os.environ.get(name)
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return before


def serve(commands, kernel):
    global RUNNING
    for line in commands:
        if line == "\n":
            continue  # an answer that an interrupt did not wait for
        command = json.loads(line)
        apply(command.get("globals") or {})
        before = apply(command.get("env") or {})
        try:
            try:
                RUNNING = True
                kernel.run(command["code"])
            finally:
                RUNNING = False
        except KeyboardInterrupt:  # between two events, or while an error was told
            failure(KeyboardInterrupt, "", ["KeyboardInterrupt"])
        CHANNEL.pending = False
        apply(before)
        CHANNEL.send({"type": "done"})


def main():
    global CHANNEL, LOCK, MAIN
    LOCK, MAIN = threading.RLock(), get_ident()
    for fd in (3, 4):
        os.set_inheritable(fd, False)
    CHANNEL = Channel(4)
    signal.signal(signal.SIGUSR1, on_renew)
    signal.signal(signal.SIGINT, on_interrupt)
    os.environ.pop("PYTHONSAFEPATH", None)
    preload = sys.argv[1:]
    sys.argv = [""]
    STREAMS[:] = out, err = Output("stdout", 1), Output("stderr", 2)
    try:
        kernel = Notebook()
    except ImportError:
        kernel = Plain()
    import importlib
    for name in preload:
        try:
            importlib.import_module(name)
        except Exception as problem:
            print("kernel: %s: %s" % (name, problem), file=sys.stderr)
    sys.path.insert(0, "")
    sys.stdout = sys.__stdout__ = out
    sys.stderr = sys.__stderr__ = err
    os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)
    sys.addaudithook(flush_before)
    threading.Thread(target=flush_late, daemon=True, name="kernel-output").start()
    commands = os.fdopen(3, "r", encoding="utf-8", newline="\n")
    CHANNEL.send({"type": "ready"})
    serve(commands, kernel)


STREAMS, LATE = [], threading.Event()
CHANNEL = LOCK = MAIN = None
main()
