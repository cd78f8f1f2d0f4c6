package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// What informers of metadata ask for, such as the garbage collector's. mediaMetadataChunk is JSON, of which a continue token can be read.
const (
	mediaMetadata     = mediaProtobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	mediaMetadataList = mediaProtobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

	mediaMetadataChunk = mediaJSON + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// largePhases measures the memory for large custom resources of which clients read only the metadata.
func largePhases(n sizes) []phase {
	path := reports.collection
	cost := []row{p50, cpuMillis, databaseCPUMillis, peakRSS}
	first := get(path + "?resourceVersion=0").as(mediaMetadataList)
	return []phase{
		{phaseStart, false, (*session).start, nil},
		{"memory, no objects", false, (*session).memory, memoryRows},
		{"create custom resource of 100 KiB, 4 clients", false, peaking(createReports), slices.Concat(cost, []row{length})},
		{"memory, all created", false, (*session).memory, memoryRows},
		{"list the metadata of all, protobuf, first", false, peaking(list(first, 1, 1)), slices.Concat(cost, []row{answerSize})},
		{"the same again", false, peaking(list(first, 1, n.Lists)), cost},
		{"the same in chunks of 500", false, peaking(walkAll(get(path).as(mediaMetadataChunk), n.Customs)), cost},
		{"streaming list of the metadata of all, protobuf", false, peaking(streamMetadata), cost},
		{"memory after lists of metadata", false, (*session).memory, memoryRows},
		{"get one", false, read(reports, 1, n.Customs, max(1, n.Gets/10)), []row{p50, cpuMicros}},
		{"merge patch of one", false, patchReports, []row{p50, cpuMicros}},
		{"database", false, (*session).database, []row{storedSize}},
		{phaseStart + ", all of this stored", false, peaking((*session).restart), []row{seconds.with(true), startMillis, peakRSS}},
		{"list the metadata of all, protobuf, first after a restart", false, peaking(listWhenServed(first)), cost},
		{"memory after a restart and this list", false, (*session).memory, memoryRows},
	}
}

// The lines of these phases that others do not have.
var (
	databaseCPUMillis = row{unit: "of that Postgres, ms", value: func(r result) figure { return r.DatabaseCPU / 1000 }}
	peakRSS           = row{unit: "peak RSS MiB", value: func(r result) figure { return r.PeakRSS }, ratio: true}
)

// samplePause is how often memory is read to find its peak.
const samplePause = 250 * time.Millisecond

// peaking adds to a phase the largest memory that the server has meanwhile, with Postgres'.
func peaking(op operation) operation {
	return func(s *session, ctx context.Context) (result, error) {
		var peak int64
		var sampling sync.WaitGroup
		done := make(chan struct{})
		see := func() {
			// A server that restarts has no memory.
			if all, _, err := s.server.memory(); err == nil {
				peak = max(peak, all.RSS)
			}
		}
		sampling.Go(func() {
			for {
				see()
				select {
				case <-done:
					return
				case <-time.After(samplePause):
				}
			}
		})
		r, err := op(s, ctx)
		close(done)
		sampling.Wait()
		see()
		r.PeakRSS = mebibytes(peak)
		return r, err
	}
}

// reports are custom resources like a scanner's: the software in an image, in some hundred entries of 500 bytes.
var reports = kind{collection("bench.example.com/v1", "imagereports"), "report", nil}

const reportDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"imagereports.bench.example.com"},` +
	`"spec":{"group":"bench.example.com","scope":"Namespaced","names":{"plural":"imagereports","singular":"imagereport","kind":"ImageReport"},` +
	`"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{` +
	`"report":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`

// report is the body of the ith report of that size, with digests that do not compress.
func report(i, size int) []byte {
	random := rand.New(rand.NewPCG(uint64(i), 0))
	digest := func(words int) string {
		var hex strings.Builder
		for range words {
			fmt.Fprintf(&hex, "%016x", random.Uint64())
		}
		return hex.String()
	}
	var body strings.Builder
	fmt.Fprintf(&body, `{"apiVersion":"bench.example.com/v1","kind":"ImageReport","metadata":{"name":%q,"labels":{"app":"shop","image-digest":%q}},`+
		`"report":{"scanner":{"name":"scanner","vendor":"Example","version":"0.71.0"},"components":[`, reports.name(i), digest(2))
	for n := 0; body.Len() < size-100; n++ {
		if n > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"bom-ref":"pkg:deb/debian/library%[1]d@1.%[2]d.0-4?arch=amd64&distro=debian-13.1","type":"library","name":"library%[1]d",`+
			`"version":"1.%[2]d.0-4","licenses":[{"license":{"name":"GPL-2.0-or-later"}}],"hashes":[{"alg":"SHA-1","content":%[3]q}],`+
			`"properties":[{"name":"scanner:LayerDigest","value":"sha256:%[4]s"},{"name":"scanner:PackageType","value":"debian"},{"name":"scanner:SourceName","value":"library%[1]d"}]}`,
			n, random.IntN(100), digest(2), digest(4))
	}
	body.WriteString(`],"summary":{"critical":0,"high":2}}}`)
	return []byte(body.String())
}

// createReports creates them after their definition, whose cost is not measured. It makes each body when it is needed: together they are
// larger than what the load generator should hold.
func createReports(s *session, ctx context.Context) (result, error) {
	if err := s.define(ctx, []byte(reportDefinition), reports.collection); err != nil {
		return result{}, err
	}
	return s.create(ctx, reports.collection, 4, s.sizes.Customs, func(i int) []byte { return report(i, s.sizes.ObjectBytes) })
}

// patchReports changes a field of some of them, one after the other.
func patchReports(s *session, ctx context.Context) (result, error) {
	return s.load(ctx, 1, max(1, s.sizes.Customs/20), func(ctx context.Context, c *client, i int) error {
		return c.do(ctx, patch(reports.path(i), mediaMergePatch, []byte(`{"report":{"scanner":{"version":"0.72.0"}}}`)))
	})
}

// listWhenServed lists once, as soon as the server does that.
func listWhenServed(r request) operation {
	return func(s *session, ctx context.Context) (result, error) {
		return s.load(ctx, 1, 1, func(ctx context.Context, c *client, _ int) error {
			return whenServed(ctx, retryAfter, func() error {
				_, err := c.discard(ctx, r)
				return err
			})
		})
	}
}

// streamMetadata reads the metadata of all from the start of a watch.
func streamMetadata(s *session, ctx context.Context) (result, error) {
	return s.load(ctx, 1, s.sizes.Lists, func(ctx context.Context, c *client, _ int) error {
		events, _, err := c.stream(ctx, get(streamPath(reports.collection)).as(mediaMetadata))
		if err == nil && events != s.sizes.Customs {
			err = fmt.Errorf("a streaming list of %d objects, not %d", events, s.sizes.Customs)
		}
		return err
	})
}
