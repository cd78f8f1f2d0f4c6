package harness

import (
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
)

// keeper is a shell that outlives this process for a moment, to end what it has started and to remove what it has
// written. It waits on a pipe whose other end only this process holds; the kernel closes that however the process ends,
// by exit, panic or SIGKILL. (A parent-death signal would not do: it comes at the death of a thread, and removes no files.)
type keeper struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// keeperScript gets a directory and a file with a pid in its first line. It waits for the end of its input, ends that
// process if it runs, waits up to 10 s until it has removed its file, and removes the directory.
const keeperScript = `
cat >/dev/null
pid=$(head -n 1 "$2" 2>/dev/null)
if [ -n "$pid" ] && kill -QUIT "$pid" 2>/dev/null; then
	for _ in $(seq 100); do
		[ -e "$2" ] || break
		sleep 0.1
	done
fi
rm -rf "$1"
`

// keepers holds every keeper that is not dismissed: the garbage collector closes a pipe that nothing refers to.
var keepers sync.Map

func startKeeper(dir, pidFile string) (*keeper, error) {
	cmd := exec.Command("sh", "-c", keeperScript, "keeper", dir, pidFile)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a control-C at the terminal must not end it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the shell that cleans up: %w", err)
	}
	k := &keeper{cmd: cmd, pipe: pipe}
	keepers.Store(k, nil)
	return k, nil
}

// dismiss lets the keeper do its work now and waits for it. Doing so twice is harmless.
func (k *keeper) dismiss() error {
	if _, waits := keepers.LoadAndDelete(k); !waits {
		return nil
	}
	if err := k.pipe.Close(); err != nil {
		return err
	}
	return k.cmd.Wait()
}
