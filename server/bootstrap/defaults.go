package bootstrap

import (
	_ "embed" // for the default objects
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sqube/sqube/sqlstore"
)

// defaults are the objects with which every cluster begins, as requests of the hooks and of controllers have left them in the database:
// roles and bindings, flow schemas and priority levels, priority classes, namespaces and APIServices. A line has group, resource, key,
// labels, fields and value, separated by tabs, after the condition under which it applies.
//
//go:generate go test -tags grpcnotrace ../../test/surface -run ^TestDefaults$ -write
//go:embed defaults.tsv
var defaults string

// Conditions of lines in defaults.tsv.
const (
	Always    = ""      // the object does not depend on what runs
	Completed = "with"  // it is as its controller leaves it: the aggregation of roles, or priority and fairness
	Bare      = "alone" // it is as it is created, since its controller does not run
)

// What stands for values that differ between servers in defaults.tsv.
const (
	UIDMark, TimeMark, ProgramMark = "$UID", "$TIME", "$PROGRAM"
)

// plainProgram are the names of programs that managed fields contain as they are.
var plainProgram = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// Defaults returns the writes that create the default objects, as of the given time. completed says which resources have a controller
// that completes them. It returns none if requests would record this program under another name than its own.
func Defaults(now time.Time, completed func(resource string) bool) []*sqlstore.Write {
	program := filepath.Base(os.Args[0])
	if !plainProgram.MatchString(program) {
		return nil
	}
	var writes []*sqlstore.Write
	common := strings.NewReplacer(TimeMark, now.UTC().Format(time.RFC3339), ProgramMark, program)
	for line := range strings.Lines(common.Replace(defaults)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if f[0] != Always && completed(f[2]) != (f[0] == Completed) {
			continue
		}
		w := &sqlstore.Write{
			Operation: "create", Resource: sqlstore.Resource{Group: f[1], Name: f[2]}, Key: f[3], Name: f[3],
			UID: string(uuid.NewUUID()), Labels: f[4], Fields: f[5],
		}
		if namespace, name, namespaced := strings.Cut(f[3], "/"); namespaced {
			w.Namespace, w.Name = namespace, name
		}
		w.Value = []byte(strings.Replace(f[6], UIDMark, w.UID, 1))
		writes = append(writes, w)
	}
	return writes
}
