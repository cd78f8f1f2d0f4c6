package history

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/test/harness"
)

// TestDelta edits texts at random and makes each from the one before.
func TestDelta(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	old := []byte(nil)
	for n := range 3000 {
		now := edit(random, old)
		delta := appendDelta(nil, old, now)
		made, err := applyDelta(nil, old, delta)
		if err != nil || !bytes.Equal(made, now) {
			t.Fatalf("edit %d made %q of %q, which was to be %q: %v", n, made, old, now, err)
		}
		old = now
	}
}

// edit replaces, adds or removes something in a text.
func edit(random *rand.Rand, text []byte) []byte {
	part := []byte(strings.Repeat(fmt.Sprintf(`,"field%d":"value %d"`, random.IntN(5), random.IntN(1000)), random.IntN(4)))
	from := random.IntN(len(text) + 1)
	to := from + random.IntN(min(len(text)-from, 80)+1)
	if len(text) > 4000 {
		to = from + random.IntN(len(text)-from+1)
	}
	return append(append(append([]byte{}, text[:from]...), part...), text[to:]...)
}

func FuzzDelta(f *testing.F) {
	f.Add([]byte(`{"a":1}`), []byte(`{"a":2}`))
	f.Fuzz(func(t *testing.T, old, now []byte) {
		if made, err := applyDelta(nil, old, appendDelta(nil, old, now)); err != nil || !bytes.Equal(made, now) {
			t.Errorf("made %q of %q, which was to be %q: %v", made, old, now, err)
		}
		_, _ = applyDelta(nil, old, now) // whatever it is, it ends
	})
}

// TestSmallChanges changes one field of an object of 5 KB again and again.
func TestSmallChanges(t *testing.T) {
	const changes, bound = 1000, 40
	var filler strings.Builder
	for i := range 60 {
		fmt.Fprintf(&filler, `{"name":"SETTING_%d","value":"what setting number %d is: %x"},`, i, i, i*i*7919)
	}
	pack := Pack(nil)
	size, blocks := int64(0), map[int64]*dialect.Block{}
	var last []*dialect.Block
	version := func(n int) *dialect.LogRow {
		return &dialect.LogRow{ID: int64(1000 + 37*n), ReplacedBy: int64(1000 + 37*(n+1)), Write: dialect.Write{
			Operation: dialect.Update, Group: "apps", Resource: "deployments", Key: "shop/web", Namespace: "shop", Name: "web", UID: "9a83f1f0-9f0c-4b51-a4a8-1f3f5c1b9d52",
			WrittenAt: int64(1_800_000_000_000 + 61_237*n), User: "system:serviceaccount:kube-system:horizontal-pod-autoscaler", FieldManager: "kube-controller-manager",
			Labels: `{"app":"web"}`, Fields: `{}`,
			Value: fmt.Appendf(nil, `{"metadata":{"generation":%d,"managedFields":[{"time":"2027-01-15T0%d:%02d:%02dZ"}]},"spec":{"replicas":%d,"env":[%s]}}`, n, n/600%10, n/60%60, n%60, n*7%50, filler.String()),
		}}
	}
	for n := range changes {
		row := &dialect.Replaced{LogRow: *version(n), Next: version(n + 1)}
		packed, err := pack([]*dialect.Replaced{row}, last)
		if err != nil || len(packed) == 0 {
			t.Fatalf("%d blocks, %v", len(packed), err)
		}
		last = packed[len(packed)-1:]
		for _, b := range packed {
			blocks[b.First] = b
		}
	}
	seen := 0
	for _, b := range blocks {
		if b == last[0] {
			b.Next = version(changes)
		}
		versions, err := Versions(b)
		harness.Must(t, err)
		for _, v := range versions {
			if n := (v.ID - 1000) / 37; !strings.Contains(string(v.Value), fmt.Sprintf(`"replicas":%d,`, n*7%50)) || v.WrittenAt != 1_800_000_000_000+61_237*n {
				t.Errorf("version %d is of %d: %s", v.ID, v.WrittenAt, v.Value[:80])
			}
			seen++
		}
		size += b.Bytes()
	}
	if seen != changes || size > changes*bound {
		t.Errorf("%d of %d versions take %d bytes in %d blocks; at most %d each are wanted", seen, changes, size, len(blocks), bound)
	}
}

func TestThin(t *testing.T) {
	rules, err := ParseRules(DefaultRules)
	harness.Must(t, err)
	const early, late, micro = `"2026-11-25T10:00:00Z"`, `"2026-11-25T10:00:10Z"`, `"2026-11-25T10:00:10.123456Z"`
	managed := func(time, more string) string {
		return `{"metadata":{"managedFields":[{"manager":"a","time":` + time + `,"fieldsType":"FieldsV1"}]}` + more + `}`
	}
	for _, test := range []struct {
		what, resource string
		old, now       string
		thin           bool
	}{
		{"a renewed Lease", "leases", `{"spec":{"renewTime":` + micro + `}}`, `{"spec":{"renewTime":` + late + `}}`, true},
		{"a renewed Lease with managedFields", "leases", managed(early, `,"spec":{"renewTime":`+early+`}`), managed(late, `,"spec":{"renewTime":`+micro+`}`), true},
		{"another holder", "leases", `{"spec":{"holderIdentity":"a","renewTime":` + early + `}}`, `{"spec":{"holderIdentity":"b","renewTime":` + late + `}}`, false},
		{"a Lease that is renewed no more", "leases", `{"spec":{"renewTime":` + early + `}}`, `{"spec":{"renewTime":null}}`, false},
		{"a time that no rule names", "leases", `{"spec":{"acquireTime":` + early + `}}`, `{"spec":{"acquireTime":` + late + `}}`, false},
		{"a restart", "deployments", `{"annotations":{"restartedAt":` + early + `}}`, `{"annotations":{"restartedAt":` + late + `}}`, false},
		{"an Event that happened again", "events", `{"count":9,"lastTimestamp":` + early + `}`, `{"count":10,"lastTimestamp":` + late + `}`, true},
		{"a count that is no number", "events", `{"count":9}`, `{"count":"9"}`, false},
		{"another message", "events", `{"message":"a","count":9}`, `{"message":"b","count":10}`, false},
		{"text like JSON in a string", "events", `{"message":"\"count\":9"}`, `{"message":"\"count\":10"}`, false},
		{"a field that comes and goes", "leases", `{"spec":{}}`, `{"spec":{"renewTime":` + late + `}}`, false},
		{"the end of an encrypted value", "leases", `k8s:enc:aesgcm:v1:key:abc`, `k8s:enc:aesgcm:v1:key:abd`, false},
	} {
		r := &dialect.Replaced{LogRow: dialect.LogRow{Write: dialect.Write{
			Operation: dialect.Update, Resource: test.resource, Labels: "{}", Fields: "{}", Value: []byte(test.now)}}}
		if test.resource == "leases" {
			r.Group = "coordination.k8s.io"
		}
		before := dialect.LogRow{Write: dialect.Write{Labels: "{}", Fields: "{}", Value: []byte(test.old), User: "other"}}
		was := &block{count: 1, writers: []writer{{}}}
		was.replaceNewest(appendDelta(nil, nil, appendText(nil, &before)))
		if _, got := rules.thin(r, was, nil); got != test.thin {
			t.Errorf("%s: thinned %t", test.what, got)
		}
	}
	for _, bad := range []string{"leases", ":renewTime", "leases:", "leases:.spec.renewTime", `leases:a"b`} {
		if _, err := ParseRules([]string{bad}); err == nil {
			t.Errorf("%q is a rule", bad)
		}
	}
}

// things are versions of an object, each with the one that replaced it.
func things(values ...string) (rows []*dialect.Replaced) {
	for n, value := range values {
		row := &dialect.Replaced{LogRow: dialect.LogRow{ID: int64(n + 1), ReplacedBy: int64(n + 2), Write: dialect.Write{
			Operation: dialect.Update, Resource: "things", Key: "a", Name: "a", Labels: "{}", Fields: "{}", Value: []byte(value)}}}
		if n > 0 {
			rows[n-1].Next = &row.LogRow
		}
		rows = append(rows, row)
	}
	return rows
}

// TestPackInParts packs versions that are edited at random, a few at a time, and reads all of them.
func TestPackInParts(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var values []string
	text := []byte(nil)
	for range 3000 {
		text = edit(random, text)
		values = append(values, string(text))
	}
	all := things(values...)
	blocks := map[int64]*dialect.Block{}
	var last []*dialect.Block
	for rest := all[:len(all)-1]; len(rest) > 0; {
		n := min(len(rest), 1+random.IntN(1+random.IntN(300)))
		packed, err := Pack(nil)(rest[:n], last)
		harness.Must(t, err)
		for _, b := range packed {
			blocks[b.First], last = b, []*dialect.Block{b}
		}
		rest = rest[n:]
	}
	last[0].Next = &all[len(all)-1].LogRow
	read := 0
	for _, b := range blocks {
		versions, err := Versions(b)
		harness.Must(t, err)
		for _, v := range versions {
			if read++; string(v.Value) != values[v.ID-1] {
				t.Fatalf("version %d is %q, not %q", v.ID, v.Value, values[v.ID-1])
			}
		}
		if at, err := At(b, versions[0].ID); err != nil || string(at.Value) != values[b.First-1] {
			t.Fatalf("version %d is %+v, %v", b.First, at, err)
		}
	}
	if read != len(all)-1 || len(blocks) < 3 {
		t.Errorf("%d of %d versions in %d blocks", read, len(all)-1, len(blocks))
	}
}

// TestDamagedBlocks damages a block in many ways. None is more than an error, and none stops what comes after it.
func TestDamagedBlocks(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	values := []string{`{"a":1}`, `{"a":2}`}
	for range 9 {
		values = append(values, string(edit(random, []byte(strings.Repeat("text", 300)))))
	}
	values = append(values, `{"a":3}`, `{"a":4}`)
	rows := things(values...)
	replaced, newest, live := rows[:len(rows)-2], rows[len(rows)-2], &rows[len(rows)-1].LogRow
	sound, err := Pack(nil)(replaced, nil)
	if err != nil || len(sound) != 1 {
		t.Fatalf("%d blocks, %v", len(sound), err)
	}
	for range 2000 {
		b := *sound[0]
		switch random.IntN(4) {
		case 0:
			b.Data = bytes.Clone(b.Data)
			b.Data[random.IntN(len(b.Data))] ^= 1 << random.IntN(8)
		case 1:
			b.Data = b.Data[:random.IntN(len(b.Data))]
		case 2:
			b.Versions = b.Versions[:random.IntN(len(b.Versions))]
		case 3:
			b.Writers = []string{"", "[]", "{}", `[["update"]]`, `[1]`}[random.IntN(5)]
		}
		next, err := Pack(nil)([]*dialect.Replaced{newest}, []*dialect.Block{&b})
		if err != nil || len(next) == 0 {
			t.Fatalf("after a damaged block: %d blocks, %v", len(next), err)
		}
		b.Next = &newest.LogRow
		_, _ = Versions(&b)
		_, _ = At(&b, 2)
		now := next[len(next)-1]
		now.Next = live
		found, err := At(now, newest.ID)
		if err != nil || found == nil || string(found.Value) != `{"a":3}` {
			t.Fatalf("after a damaged block: %+v, %v", found, err)
		}
	}
}
