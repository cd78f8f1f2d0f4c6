package faults

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Programs read the clock from code that the kernel maps into each process, the vDSO, without a system call. That code is
// replaced: its functions jump to others, in the unused end of the mapping, that make the system call and add an offset in
// seconds, stored next to them, to the wall clock.

// ClockOff makes a command, not started yet, run with a wall clock that is off by d, in whole seconds, from its start.
// StepClock changes that. Programs that it starts have the same offset. Other clocks are correct.
func ClockOff(t testing.TB, cmd *exec.Cmd, d time.Duration) {
	t.Helper()
	// Every program makes this call once, before it reads the time.
	newInterceptor(t, func(c *call) unix.Errno {
		if err := startClock(int(c.thread), d); err != nil {
			fmt.Fprintf(os.Stderr, "faults: setting the clock of process %d: %v\n", c.thread, err)
			return unix.EPERM // ends every program at once
		}
		return 0
	}, unix.SYS_ARCH_PRCTL).run(cmd)
}

// StepClock sets the wall clock of a running process off by d, in whole seconds, from the correct time. Its other clocks, and
// the clocks of other processes, including its children, are not changed.
func StepClock(pid int, d time.Duration) error {
	err := stepClock(pid, d)
	if err != nil {
		return fmt.Errorf("stepping the clock of process %d: %w", pid, err)
	}
	return nil
}

func stepClock(pid int, d time.Duration) error {
	v, err := openVDSO(pid)
	if err != nil {
		return err
	}
	defer v.memory.Close()
	if v.patched() {
		return v.setOffset(d) // eight bytes at once
	}
	changes, err := v.changes(d)
	if err != nil {
		return err
	}
	for range 100 {
		done, err := v.patchStopped(pid, changes)
		if done || err != nil {
			return err
		}
		time.Sleep(time.Millisecond) // a thread was in the code to be changed
	}
	return errors.New("its threads read the clock all the time")
}

// startClock is stepClock for a process stopped in its first system call.
func startClock(pid int, d time.Duration) error {
	v, err := openVDSO(pid)
	if err != nil {
		return err
	}
	defer v.memory.Close()
	if v.patched() {
		return nil // StepClock may have been faster
	}
	changes, err := v.changes(d)
	if err != nil {
		return err
	}
	return v.apply(changes)
}

// vdso is the vDSO of a process.
type vdso struct {
	memory *os.File
	start  int64
	image  []byte
}

func openVDSO(pid int) (*vdso, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(line, " [vdso]\n") {
			continue
		}
		var start, end int64
		if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err != nil {
			return nil, err
		}
		memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		v := &vdso{memory: memory, start: start, image: make([]byte, end-start)}
		if _, err := memory.ReadAt(v.image, start); err != nil {
			return nil, errors.Join(err, memory.Close())
		}
		return v, nil
	}
	return nil, errors.New("it has no vDSO")
}

// function is the replacement of a vDSO function, with OFFS for the distance to the offset.
type function struct {
	name string
	code string
}

var functions = []function{
	{"__vdso_clock_gettime", "" +
		"\xb8\xe4\x00\x00\x00" + // mov eax, SYS_clock_gettime
		"\x0f\x05" + // syscall
		"\x85\xc0\x75\x13" + // test eax, eax; jnz end
		"\x85\xff\x74\x05" + // test edi, edi; jz add (CLOCK_REALTIME)
		"\x83\xff\x05\x75\x0a" + // cmp edi, CLOCK_REALTIME_COARSE; jne end
		"\x48\x8b\x0dOFFS" + // add: mov rcx, [rip + offset]
		"\x48\x01\x0e" + // add [rsi], rcx
		"\xc3"}, // end: ret
	{"__vdso_gettimeofday", "" +
		"\xb8\x60\x00\x00\x00" + // mov eax, SYS_gettimeofday
		"\x0f\x05" + // syscall
		"\x85\xc0\x75\x0f" + // test eax, eax; jnz end
		"\x48\x85\xff\x74\x0a" + // test rdi, rdi; jz end
		"\x48\x8b\x0dOFFS" + // mov rcx, [rip + offset]
		"\x48\x01\x0f" + // add [rdi], rcx
		"\xc3"}, // end: ret
	{"__vdso_time", "" +
		"\xb8\xc9\x00\x00\x00" + // mov eax, SYS_time
		"\x0f\x05" + // syscall
		"\x48\x03\x05OFFS" + // add rax, [rip + offset]
		"\x48\x85\xff\x74\x03" + // test rdi, rdi; jz end
		"\x48\x89\x07" + // mov [rdi], rax
		"\xc3"}, // end: ret
}

// room is how many bytes at the end of the mapping are used: for the offset, then the functions.
const room = 256

func (v *vdso) offset() int { return len(v.image) - room }

// jump returns the instruction at address from that jumps to address to.
func jump(from, to int) []byte { return distance([]byte{0xe9}, from+5, to) }

// distance appends the distance of to from next, the address of the next instruction.
func distance(code []byte, next, to int) []byte {
	return binary.LittleEndian.AppendUint32(code, uint32(int32(to-next)))
}

// change has bytes to be written at an address of the vDSO.
type change struct {
	at    int
	bytes []byte
}

// changes returns what to write, in order, to set wall clocks off by d.
func (v *vdso) changes(d time.Duration) ([]change, error) {
	file, err := elf.NewFile(bytes.NewReader(v.image))
	if err != nil {
		return nil, err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return nil, err
	}
	if len(bytes.Trim(v.image[v.offset():], "\x00")) > 0 {
		return nil, errors.New("its vDSO has no unused end")
	}
	code := binary.LittleEndian.AppendUint64(nil, uint64(d/time.Second))
	var jumps []change
	for _, f := range functions {
		entry := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == f.name })
		if entry < 0 {
			return nil, fmt.Errorf("its vDSO has no %s", f.name)
		}
		at := int(symbols[entry].Value)
		jumps = append(jumps, change{at, jump(at, v.offset()+len(code))})
		before, after, _ := strings.Cut(f.code, "OFFS")
		code = append(code, before...)
		code = distance(code, v.offset()+len(code)+4, v.offset())
		code = append(code, after...)
	}
	return append([]change{{v.offset(), code}}, jumps...), nil
}

func (v *vdso) patched() bool { return v.image[v.offset()+8] != 0 }

func (v *vdso) setOffset(d time.Duration) error {
	return v.apply([]change{{v.offset(), binary.LittleEndian.AppendUint64(nil, uint64(d/time.Second))}})
}

func (v *vdso) apply(changes []change) error {
	for _, c := range changes {
		if _, err := v.memory.WriteAt(c.bytes, v.start+int64(c.at)); err != nil {
			return err
		}
	}
	return nil
}

// patchStopped stops a process, replaces the code unless a thread is in its first instructions, and continues the process.
func (v *vdso) patchStopped(pid int, changes []change) (done bool, err error) {
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, unix.Kill(pid, unix.SIGCONT)) }()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		at, err := threads(pid)
		switch {
		case err != nil:
			return false, err
		case at != nil:
			for _, pc := range at {
				for _, c := range changes {
					if inside := pc - v.start - int64(c.at); inside > 0 && inside < int64(len(c.bytes)) {
						return false, nil
					}
				}
			}
			return true, v.apply(changes)
		case time.Now().After(deadline):
			return false, errors.New("it does not stop")
		}
	}
}

// threads returns the program counters of a stopping process' threads, or nil while one still runs its code. Once one has
// stopped, those waiting in the kernel will stop before they run code again.
func threads(pid int) (at []int64, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil {
		return nil, err
	}
	stopped := false
	for _, file := range files {
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(file), "stat"))
		if err != nil {
			return nil, err
		}
		stopped = stopped || bytes.Contains(stat, []byte(") T "))
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		fields := strings.Fields(string(text)) // "running", or the call, its arguments, stack pointer, program counter
		if len(fields) < 3 {
			return nil, nil
		}
		pc, err := strconv.ParseInt(fields[len(fields)-1], 0, 64)
		if err != nil {
			return nil, err
		}
		at = append(at, pc)
	}
	if !stopped {
		return nil, nil
	}
	return at, nil
}
