package memlimit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

func TestMemory(t *testing.T) {
	const machine = "MemTotal:         524288 kB\nMemFree:          100000 kB\n"
	for name, test := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing is known":      {nil, 0},
		"a machine":             {map[string]string{"proc/meminfo": machine}, 512 << 20},
		"no number":             {map[string]string{"proc/meminfo": "MemTotal: many kB\n"}, 0},
		"no limit":              {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 512 << 20},
		"a limit":               {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1048576\n"}, 1 << 20},
		"a limit of the parent": {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "2097152\n"}, 2 << 20},
		"a container":           {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "3145728\n"}, 3 << 20},
		"more than the machine": {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "9223372036854771712\n"}, 512 << 20},
		"a limit of version 1":  {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "3:cpu:/x\n2:memory:/a\nx\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "4194304\n"}, 4 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range test.files {
				file = filepath.Join(root, file)
				harness.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
				harness.Must(t, os.WriteFile(file, []byte(text), 0o644))
			}
			if got := Available(root); got != test.want {
				t.Errorf("%d bytes, want %d", got, test.want)
			}
		})
	}
	if got := Available("/"); got <= 0 {
		t.Errorf("this machine has %d bytes", got)
	}
}
