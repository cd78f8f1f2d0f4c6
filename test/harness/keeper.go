package harness

import (
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
)

// Keeper is a shell that outlives this process for a moment, to stop a server that this process has started and to remove its
// files. It waits on a pipe whose other end only this process holds; the kernel closes that however the process ends, by exit,
// panic or SIGKILL. (A parent-death signal would not do: it is sent at the death of a thread.)
type Keeper struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// keeperScript gets the directory to remove, which may be "". It reads process ids until the end of its input, sends SIGQUIT to
// the process in the last line, if any, and removes the directory, to which that process may still write for a moment.
const keeperScript = `
pid=
while read -r line; do pid=$line; done
[ -z "$pid" ] || kill -QUIT "$pid" 2>/dev/null
[ -n "$1" ] || exit 0
for _ in $(seq 100); do
	rm -rf "$1" 2>/dev/null && exit 0
	sleep 0.1
done
exit 1
`

// keepers has every keeper that is not dismissed: the garbage collector closes unreferenced pipes.
var keepers sync.Map

// NewKeeper starts a keeper that removes the directory when this process ends, unless it is dismissed before. An empty name
// means no directory.
func NewKeeper(dir string) (*Keeper, error) {
	cmd := exec.Command("sh", "-c", keeperScript, "keeper", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a control-C at the terminal must not end it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the shell that cleans up: %w", err)
	}
	k := &Keeper{cmd: cmd, pipe: pipe}
	keepers.Store(k, nil)
	return k, nil
}

// Watch sets the process to stop, replacing the previous one.
func (k *Keeper) Watch(pid int) error {
	_, err := fmt.Fprintln(k.pipe, pid)
	return err
}

// Forget tells the keeper that the process has ended: its id may soon be reused.
func (k *Keeper) Forget() error {
	_, err := fmt.Fprintln(k.pipe)
	return err
}

// Dismiss makes the keeper clean up now and waits for it. Calling it twice is harmless.
func (k *Keeper) Dismiss() error {
	if _, waits := keepers.LoadAndDelete(k); !waits {
		return nil
	}
	if err := k.pipe.Close(); err != nil {
		return err
	}
	return k.cmd.Wait()
}
