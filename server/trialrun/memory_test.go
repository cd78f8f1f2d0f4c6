package trialrun

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

func TestFreeMemory(t *testing.T) {
	const machine = "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 524288 kB\n"
	for name, test := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing is known": {nil, 0},
		"a machine":        {map[string]string{"proc/meminfo": machine}, 512 << 20},
		"no limit":         {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 512 << 20},
		"a limit":          {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "1000\n", "sys/fs/cgroup/a/memory.current": "400\n"}, 600},
		"files in a limit": {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1000\n", "sys/fs/cgroup/memory.current": "900\n", "sys/fs/cgroup/memory.stat": "anon 5\ninactive_file 300\nslab 1\n"}, 400},
		"a limit exceeded": {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1000\n", "sys/fs/cgroup/memory.current": "1400\n"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range test.files {
				file = filepath.Join(root, file)
				harness.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
				harness.Must(t, os.WriteFile(file, []byte(text), 0o644))
			}
			if got := freeMemory(root); got != test.want {
				t.Errorf("%d bytes, want %d", got, test.want)
			}
		})
	}
}
