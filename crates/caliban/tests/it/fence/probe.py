# What a program can reach: each attempt prints its name and "open" or "held". Run outside of a fence it shows that the
# attempts themselves work. Arguments: TCP port of a listener outside, path of a unix socket, abstract name, pid of a
# process outside, path of a file outside, path of the workspace, UDP port of a socket outside, path of a tmux server's socket,
# id of a shared memory segment. Descriptors: 77 the directory of the file outside, 78 the file; a terminal that is the session's.
import ctypes, errno, json, os, signal, socket, struct, subprocess, sys

port, unix, abstract, outsider, secret, work = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5], sys.argv[6]
udp, tmux, shm = int(sys.argv[7]), sys.argv[8], int(sys.argv[9])
libc = ctypes.CDLL(None, use_errno=True)
results = {}

def attempt(name):
    def run(function):
        try:
            function()
            results[name] = "open"
        except BaseException as error:
            results[name] = "held"
            sys.stderr.write("%s: %s\n" % (name, error))
    return run

def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_void_p(a) if isinstance(a, int) else a for a in arguments])
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

@attempt("tcp")
def _(): socket.create_connection(("127.0.0.1", port), 2).close()
@attempt("mptcp")
def _():
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); s.settimeout(2); s.connect(("127.0.0.1", port))
@attempt("fastopen")
def _():
    s = socket.socket(); s.settimeout(2); s.sendto(b"x", 0x20000000, ("127.0.0.1", port))
@attempt("udp")
def _():
    # Nobody says that it came: the other end answers.
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2); s.sendto(b"ping", ("127.0.0.1", udp)); s.recv(9)
@attempt("tmux")
def _(): subprocess.run(["tmux", "-S", tmux, "send-keys", "x"], check=True, capture_output=True)
@attempt("listen without bind")
def _():
    # In a network namespace of its own nobody outside can reach it: it is told on a socket that the outside can see.
    s = socket.socket(); s.listen()
    with open("/proc/net/tcp") as f: seen = f.read()
    if "%04X" % port not in seen: raise OSError("another network")
@attempt("unix path")
def _(): socket.socket(socket.AF_UNIX).connect(unix)
@attempt("unix abstract")
def _(): socket.socket(socket.AF_UNIX).connect("\0" + abstract)
@attempt("vsock")
def _(): socket.socket(40, socket.SOCK_STREAM)
@attempt("packet")
def _(): socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
@attempt("signal")
def _(): os.kill(outsider, 0)
@attempt("proc environ")
def _(): open("/proc/%d/environ" % outsider, "rb").read()
@attempt("proc cmdline")
def _(): open("/proc/%d/cmdline" % outsider, "rb").read()
@attempt("proc mem")
def _(): open("/proc/%d/mem" % outsider, "rb").close()
@attempt("proc maps")
def _(): open("/proc/%d/maps" % outsider, "rb").read()
@attempt("proc fd")
def _(): os.listdir("/proc/%d/fd" % outsider)
# Whoever started us left a directory and a file open, under these numbers.
@attempt("inherited directory")
def _(): os.close(os.open(os.path.basename(secret), os.O_RDONLY, dir_fd=77))
@attempt("inherited directory by path")
def _(): open("/proc/self/fd/77/" + os.path.basename(secret)).read()
@attempt("inherited directory above")
def _(): os.listdir("/proc/self/fd/77/..")
@attempt("inherited directory as cwd")
def _():
    here = os.getcwd()
    os.fchdir(77); os.chdir(here)
@attempt("inherited file")
def _(): os.write(78, b"")
@attempt("inherited file by path")
def _(): open("/proc/self/fd/78", "a").close()
@attempt("inherited by another process")
def _():
    # The first process of a fence, and whoever else can be seen.
    pids = [n for n in os.listdir("/proc") if n.isdigit() and int(n) != os.getpid()]
    if not any(os.path.exists("/proc/%s/fd/%d" % (n, fd)) for n in pids for fd in (77, 78)): raise OSError("none")
@attempt("proc cwd")
def _(): os.listdir("/proc/%d/cwd" % outsider)
@attempt("proc root")
def _(): os.listdir("/proc/%d/root" % outsider)
@attempt("process memory")
def _():
    # Not a readable address, so another error than a refusal says that it is open.
    buffer = ctypes.create_string_buffer(8)
    pair = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
    far = (ctypes.c_void_p * 2)(0x1000, 8)
    try: call(310, outsider, ctypes.addressof(pair), 1, ctypes.addressof(far), 1, 0)
    except OSError as error:
        if error.errno != errno.EFAULT: raise
@attempt("process descriptor")
def _():
    fd = os.pidfd_open(outsider); call(438, fd, 0, 0)
@attempt("priority")
def _(): os.setpriority(os.PRIO_PROCESS, outsider, os.getpriority(os.PRIO_PROCESS, outsider))
@attempt("affinity")
def _(): os.sched_setaffinity(outsider, os.sched_getaffinity(outsider))
@attempt("prlimit")
def _():
    import resource
    resource.prlimit(outsider, resource.RLIMIT_NOFILE)
@attempt("ptrace")
def _(): call(101, 16, outsider, 0, 0) and call(101, 17, outsider, 0, 0)
@attempt("read outside")
def _(): open(secret).read()
@attempt("write outside")
def _(): open(secret, "a").close()
@attempt("chmod outside")
def _(): os.chmod(secret, 0o644)
@attempt("times outside")
def _(): os.utime(secret)
@attempt("attributes outside")
def _(): os.setxattr(secret, "user.caliban", b"x")
@attempt("bashrc")
def _(): open(os.environ["HOME"] + "/.bashrc", "a").close() if os.path.exists(os.environ["HOME"] + "/.profile") else 1 / 0
@attempt("unit file")
def _():
    if not os.path.exists(os.environ["HOME"] + "/.profile"): raise OSError("another home")
    os.makedirs(os.environ["HOME"] + "/.config/systemd/user", exist_ok=True)
    open(os.environ["HOME"] + "/.config/systemd/user/x.service", "w").close()
@attempt("other architecture")
def _():
    # `int 0x80` with number 20 (getpid) of the 32-bit calls; in a child, because a filter kills.
    import mmap
    code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
    child = os.fork()
    if child == 0:
        memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        memory.write(code)
        run = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
        os._exit(0 if run() > 0 else 1)
    if os.waitpid(child, 0)[1] != 0: raise OSError("killed")
@attempt("file handle")
def _():
    # A handle is no path: it leads to a file that is not in the view. `open_by_handle_at` needs a right that only root has outside.
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    mount = ctypes.c_int()
    near = secret if os.path.exists(secret) else work
    call(303, -100, ctypes.c_char_p(near.encode()), ctypes.addressof(handle), ctypes.addressof(mount), 0)
@attempt("shadow")
def _(): open("/etc/shadow").read()
@attempt("write system")
def _():
    open("/usr/caliban-probe", "w").close(); os.unlink("/usr/caliban-probe")
@attempt("write etc")
def _():
    open("/etc/caliban-probe", "w").close(); os.unlink("/etc/caliban-probe")
@attempt("sysctl")
def _(): open("/proc/sys/kernel/core_pattern", "r+").close()
@attempt("user namespace")
def _(): call(272, 0x10000000)
@attempt("mount namespace")
def _(): call(272, 0x00020000)
@attempt("keyring")
def _(): call(250, 0, -3, 1)
@attempt("io_uring")
def _():
    buffer = ctypes.create_string_buffer(120); call(425, 1, ctypes.addressof(buffer))
@attempt("bpf")
def _(): call(321, 5, 0, 0)
@attempt("shared memory")
def _():
    # A segment of somebody outside.
    address = libc.shmat
    address.restype = ctypes.c_void_p
    found = address(shm, None, 0)
    if found is None or found == ctypes.c_void_p(-1).value: raise OSError(ctypes.get_errno(), "shmat")
@attempt("git config")
def _(): open(work + "/.git/config", "a").close()
@attempt("git hook")
def _(): open(work + "/.git/hooks/post-checkout", "w").close()
@attempt("git info")
def _(): open(work + "/.git/info/attributes", "a").close()
@attempt("move git")
def _():
    os.rename(work + "/.git", work + "/moved"); os.rename(work + "/moved", work + "/.git")
@attempt("link git")
def _(): os.link(work + "/.git/config", work + "/linked")
@attempt("envrc")
def _(): open(work + "/.envrc", "a").close()
@attempt("move envrc")
def _():
    os.rename(work + "/.envrc", work + "/moved"); os.rename(work + "/moved", work + "/.envrc")
@attempt("settings")
def _(): open(work + "/.caliban/settings.toml", "a").close()
@attempt("home")
def _(): open(os.environ["HOME"] + "/.profile").read()
@attempt("daemon data")
def _(): os.listdir(os.environ["XDG_DATA_HOME"] if "XDG_DATA_HOME" in os.environ else "/nonexistent")
# Typing into a terminal may be switched off, and the last one is for consoles: any answer but a refusal says that it got through.
def order_to_terminal(number, argument):
    import fcntl, pty, termios
    inner, outer = pty.openpty()
    child = os.fork()
    if child == 0:
        os.setsid()
        fcntl.ioctl(outer, termios.TIOCSCTTY, 0)
        try: fcntl.ioctl(outer, number, argument)
        except OSError as error: os._exit(1 if error.errno == errno.EPERM else 0)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0: raise OSError("refused")
@attempt("type into a terminal")
def _(): order_to_terminal(0x5412, b"x")
@attempt("line discipline of a terminal")
def _(): order_to_terminal(0x5423, b"\0\0\0\0")
@attempt("console")
def _(): order_to_terminal(0x541C, b"\x02")
@attempt("the person's terminal")
def _(): os.close(os.open("/dev/tty", os.O_RDWR))
@attempt("workspace")
def _(): open(work + "/made", "w").close()
@attempt("loopback")
def _():
    s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
    socket.create_connection(s.getsockname(), 2).close()
@attempt("temporary")
def _(): open("/tmp/caliban-probe-%d" % os.getpid(), "w").close()
print(json.dumps(results))
