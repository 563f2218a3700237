"""What tests/server starts: finds or fetches the server programs, and makes
the data directory and the certificates of a new server. (tests/bare fetches
its Debian by the same functions.)"""
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Iterator, NamedTuple, Optional

CACHE = Path(os.environ.get("DLEASE_CACHE") or Path.home() / ".cache" / "dlease").absolute()
# A user's PATH often lacks the directories where servers are.
SEARCH_PATH = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin"
# Both servers refuse to run as root without being told.
AS_ROOT = ["--user=root"] if os.geteuid() == 0 else []

MYSQL_OPTIONS = ["--server-id=1", "--log-bin=binlog", "--sync-binlog=1", "--mysqlx=OFF",
                 "--secure-file-priv=NULL"]

# MariaDB's bootstrap starts without grant tables and makes accounts without a
# password: anonymous ones, and root for each name of the host.
MARIADB_CLEAN_SQL = """
FLUSH PRIVILEGES;
DELETE FROM mysql.global_priv WHERE User = '' OR Host <> 'localhost';
FLUSH PRIVILEGES;
"""
# For localhost as well as %, since a server may take 127.0.0.1 and the socket
# for localhost and prefers the narrower account.
ACCOUNTS_SQL = r"""
CREATE DATABASE dlease;
CREATE USER 'dl'@'%' IDENTIFIED BY '{dl}', 'dl'@'localhost' IDENTIFIED BY '{dl}';
CREATE USER 'dl_min'@'%' IDENTIFIED BY '{dl_min}', 'dl_min'@'localhost' IDENTIFIED BY '{dl_min}';
GRANT ALL ON `dlease`.* TO 'dl'@'%', 'dl'@'localhost';
GRANT ALL ON `dlease\_%`.* TO 'dl'@'%', 'dl'@'localhost';
GRANT SELECT, INSERT, UPDATE, DELETE ON `dlease`.* TO 'dl_min'@'%', 'dl_min'@'localhost';
ALTER USER 'root'@'localhost' IDENTIFIED BY '{root}';
"""

CERTIFICATES_CONFIG = """
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = IP:127.0.0.1, IP:::1, DNS:localhost
"""


class Failure(Exception):
    """Told in one line on standard error, exit 1."""


class Build(NamedTuple):
    """An installed server: how its programs are called."""
    version: str
    server: list[str]
    client: list[str]
    options: list[str]


def say(text: str) -> None:
    print(f"tests/{Path(sys.argv[0]).name}: {text}", file=sys.stderr, flush=True)


def run(*argv: object) -> str:
    """Run a tool to its end: its output, or Failure with its last line."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace")
    except FileNotFoundError:
        raise Failure(f"{words[0]} is not installed: run tests/setup") from None
    if done.returncode:
        raise Failure(f"{words[0]} failed ({done.returncode}): {last_line(done.stdout)}")
    return done.stdout


def last_line(text: str) -> str:
    return (text.strip() or "no output").splitlines()[-1]


def find(*programs: str) -> Optional[str]:
    """The first of these programs that is installed."""
    return next(filter(None, (shutil.which(p, path=SEARCH_PATH) for p in programs)), None)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other tests/server processes out of what `path` stands for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def made_once(path: Path) -> Iterator[Optional[Path]]:
    """Yield a scratch directory that becomes `path` at the end, or None where
    `path` is there already. What an earlier try left half made is made anew."""
    with locked(path.with_name(path.name + ".lock")):
        if path.exists():
            yield None
            return
        scratch = path.with_name(path.name + ".new")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        yield scratch
        scratch.rename(path)


# --- MariaDB: from Debian -----------------------------------------------------

def mariadb_build() -> Build:
    server, client = find("mariadbd", "mysqld"), find("mariadb", "mysql")
    if not server or not client or "MariaDB" not in version_of([server]):
        raise Failure("MariaDB is not installed: run tests/setup")
    plugins = ed25519_plugins(server)
    options = [f"--plugin-dir={plugins}", "--plugin-load-add=auth_ed25519"] if plugins else []
    return Build(version_of([server]), [server], [client], options)


def version_of(server: list[str]) -> str:
    found = re.search(r"Ver (\S+)", run(*server, "--no-defaults", "--version"))
    return found.group(1) if found else "unknown"


def ed25519_plugins(server: str) -> Optional[Path]:
    """The plugin directory with auth_ed25519. Debian has it only in
    mariadb-server, which starts a service when it is installed: so it is taken
    out of that package. A server that is not Debian's goes without."""
    found = re.search(r"^plugin-dir +(\S+)", run(server, "--no-defaults", "--verbose", "--help"), re.M)
    if found and Path(found.group(1), "auth_ed25519.so").exists():
        return Path(found.group(1))
    try:
        package = run("dpkg-query", "--search", os.path.realpath(server)).split(":")[0]
        version = run("dpkg-query", "--show", "--showformat=${Version}", package)
        plugins = CACHE / f"mariadb-plugins-{version}"
        with made_once(plugins) as scratch:
            if scratch:
                subprocess.run(["apt-get", "-q", "download", f"mariadb-server={version}"], cwd=scratch,
                               check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for archive in scratch.glob("*.deb"):
                    run("dpkg", "-x", archive, scratch / "package")
                    archive.unlink()
                for plugin in scratch.glob("package/usr/lib/mysql/plugin/*.so"):
                    plugin.rename(scratch / plugin.name)
                shutil.rmtree(scratch / "package")
        return plugins
    except (Failure, OSError, subprocess.CalledProcessError) as error:
        say(f"going on without the plugin auth_ed25519: {error}")
        return None


# --- MySQL: on the PATH, or from Debian sid ------------------------------------

def mysql_build() -> Build:
    server, client = find("mysqld"), find("mysql")
    if server and client:
        version = version_of([server])
        numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:3])
        if "MariaDB" not in version and numbers >= (8, 0, 22):
            return Build(version, [server], [client], MYSQL_OPTIONS)
    # Debian 12 has no MySQL, so a small sid is put beside the system. Its
    # programs are called through its own loader and libraries, not by chroot:
    # data and socket may lie anywhere then, and only fetching it needs root.
    sid = CACHE / "mysql-sid"
    if os.geteuid() == 0:
        debootstrap(sid, "sid", "mysql-server-core,mysql-client-core")
    elif not sid.exists():
        raise Failure("no mysqld >= 8.0.22 on the PATH, and only root can fetch one: "
                      "start mysql once as root with the same DLEASE_CACHE")
    loader = next(sid.glob("usr/lib/*-linux-gnu*/ld-linux-*.so.*"))

    def program(path: str) -> list[str]:
        whole = f"{sid}/{path}"
        return [str(loader), "--library-path", str(loader.parent), "--argv0", whole, whole]

    mysqld = program("usr/sbin/mysqld")
    return Build(version_of(mysqld), mysqld, program("usr/bin/mysql"),
                 [f"--basedir={sid}/usr", *MYSQL_OPTIONS])


def debootstrap(path: Path, suite: str, packages: str) -> None:
    """Make a minimal Debian with these packages at `path`, unless it is there."""
    log = path.with_name(path.name + ".log")
    for last_try in (False, True):
        try:
            with made_once(path) as scratch:
                if not scratch:
                    return
                say(f"fetching a small Debian {suite} with {packages} (half a minute) ...")
                # In a mount namespace of its own: what debootstrap mounts ends with it.
                with open(log, "w") as out:
                    subprocess.run(["unshare", "--mount", "debootstrap", "--variant=minbase",
                                    f"--include={packages}", suite, str(scratch), debian_mirror()],
                                   env={**os.environ, **apt_proxy()}, check=True,
                                   stdin=subprocess.DEVNULL, stdout=out, stderr=out)
                for archive in scratch.glob("var/cache/apt/archives/*.deb"):
                    archive.unlink()
            return
        except FileNotFoundError as error:
            raise Failure(f"{error.filename} is not installed: run tests/setup") from None
        except subprocess.CalledProcessError:
            why = last_line(log.read_text(errors="replace"))
            if last_try:
                raise Failure(f"Debian {suite} could not be fetched: {why} (see {log})") from None
            say(f"debootstrap failed ({why}), trying once more")


def debian_mirror() -> str:
    """The mirror from which this machine's apt has Debian itself."""
    try:
        uris = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages",
                   "Origin: Debian", "Label: Debian", "Component: main").split()
    except Failure:
        uris = []
    return next((uri for uri in uris if uri.startswith("http")), "http://deb.debian.org/debian")


def apt_proxy() -> dict[str, str]:
    """apt's own proxy, if it has one, for debootstrap's downloader."""
    with contextlib.suppress(Failure):
        found = re.search(r"P='(.+)'", run("apt-config", "shell", "P", "Acquire::http::Proxy"))
        if found:
            return {"http_proxy": found.group(1)}
    return {}


BUILDS = {"mariadb": mariadb_build, "mysql": mysql_build}


# --- What a new server is made of ----------------------------------------------

def template(kind: str, build: Build, init_options: list[str]) -> Path:
    """A directory with data/ and passwords.json that new servers are copied
    from: initialising takes seconds, a copy does not. One for each version and
    set of initial options."""
    recipe = json.dumps([MARIADB_CLEAN_SQL, ACCOUNTS_SQL, init_options])
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:8]
    path = CACHE / "data" / f"{kind}-{build.version}-{digest}"
    with made_once(path) as scratch:
        if scratch:
            say(f"making a data directory for {kind} {build.version} ...")
            scratch.chmod(0o700)
            passwords = {account: secrets.token_hex(12) for account in ("root", "dl", "dl_min")}
            (scratch / "passwords.json").write_text(json.dumps(passwords))
            sql = scratch / "accounts.sql"
            sql.write_text((MARIADB_CLEAN_SQL if kind == "mariadb" else "")
                           + ACCOUNTS_SQL.format(**passwords))
            where = ["--no-defaults", f"--datadir={scratch}/data", *AS_ROOT, *init_options]
            if kind == "mariadb":
                install = find("mariadb-install-db", "mysql_install_db") or "mariadb-install-db"
                run(install, *where, "--auth-root-authentication-method=normal", "--skip-test-db",
                    f"--extra-file={sql}")
            else:
                run(*build.server, *where, *build.options, "--initialize-insecure", f"--init-file={sql}")
                # The server's uuid: each copy must make its own.
                (scratch / "data/auto.cnf").unlink()
            sql.unlink()
    return path


def make_certificates(where: Path) -> None:
    """ca.pem, and server.pem with server-key.pem signed by it: of version 3,
    with the names that clients check."""
    config = where / "openssl.cnf"
    config.write_text(CERTIFICATES_CONFIG)
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-config", config]
    run("openssl", "req", "-x509", *new_key, "-extensions", "authority", "-days", 3650,
        "-subj", "/CN=dlease test authority", "-keyout", where / "ca-key.pem", "-out", where / "ca.pem")
    run("openssl", "req", *new_key, "-subj", "/CN=127.0.0.1",
        "-keyout", where / "server-key.pem", "-out", where / "server.csr")
    run("openssl", "x509", "-req", "-in", where / "server.csr", "-CA", where / "ca.pem",
        "-CAkey", where / "ca-key.pem", "-set_serial", 1, "-days", 3650,
        "-extfile", config, "-extensions", "server", "-out", where / "server.pem")
