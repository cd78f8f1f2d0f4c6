package openapi

import (
	"context"
	_ "embed" // for the archive
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/server/openapi/internal/archive"
)

// Config has the APIs that the service publishes.
type Config struct {
	// BuiltIn are the built-in group versions that are served.
	BuiltIn []schema.GroupVersion
	// Definitions lists the established CustomResourceDefinitions by name. They need no schemas, and the service does not change
	// them.
	Definitions func() []*apiextensionsv1.CustomResourceDefinition
	// Whole returns the current CustomResourceDefinition of that name, with its schemas.
	Whole func(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error)
	// Partly has, by name, definitions of which not all operations are served, and what is.
	Partly map[string]Serves
	// Remotes lists what other servers publish; nil for nothing. If two publish the same group version, the first one wins.
	Remotes func() []Remote
}

// Service serves OpenAPI documents. It is safe for concurrent use.
type Service struct {
	builtin     *builtin
	definitions func() []definition // without schemas
	whole       func(context.Context, string) (definition, error)
	partly      map[string]Serves
	remotes     func() []Remote
	rendered    *cache
	// seed is part of the ETag of every document with custom resources, since another release may render them differently.
	seed string
}

// New reads the index of the embedded documents. An error means that the binary was built from a broken archive.
func New(c Config) (*Service, error) {
	b, err := loadBuiltin(c.BuiltIn)
	if err != nil {
		return nil, err
	}
	if c.Remotes == nil {
		c.Remotes = func() []Remote { return nil }
	}
	seed := []string{b.release}
	for _, f := range b.v2 {
		seed = append(seed, fmt.Sprint(f.Proto))
	}
	return &Service{
		builtin:     b,
		definitions: c.Definitions,
		whole:       c.Whole,
		partly:      c.Partly,
		remotes:     c.Remotes,
		rendered:    newCache(keep),
		seed:        hash(seed...),
	}, nil
}

// The paths under which the documents are served.
const (
	PathV2 = "/openapi/v2"
	PathV3 = "/openapi/v3"
)

// ServeHTTP serves the OpenAPI v2 document, the list of OpenAPI v3 documents, and each of these. It responds with 404 to other
// paths, and for documents of group versions that are not served.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case path == PathV2:
		s.serveV2(w, r)
	case path == PathV3:
		s.serveV3Index(w, r)
	case strings.HasPrefix(path, PathV3+"/"):
		s.serveV3(w, r, strings.TrimPrefix(path, PathV3+"/"))
	default:
		http.NotFound(w, r)
	}
}

// keep is how long a rendered document stays in memory after its last use: long enough for the clients of one deployment, short
// enough that an idle server keeps none.
const keep = time.Minute

// cache holds rendered documents, each for some time after its last use.
type cache struct {
	keep time.Duration

	lock    sync.Mutex
	entries map[string]*entry
}

// errPanicked is the result of a build that did not return.
var errPanicked = errors.New("rendering the OpenAPI document panicked; the log has the stack")

type entry struct {
	once   sync.Once
	value  any
	err    error
	expiry *time.Timer
}

func newCache(keep time.Duration) *cache {
	return &cache{keep: keep, entries: map[string]*entry{}}
}

// get returns the result of build for the key. Concurrent callers wait for the same build; errors are not cached.
func get[T any](c *cache, key string, build func() (T, error)) (T, error) {
	c.lock.Lock()
	e, ok := c.entries[key]
	if !ok {
		e = &entry{}
		e.expiry = time.AfterFunc(c.keep, func() { c.drop(key, e) })
		c.entries[key] = e
	}
	e.expiry.Reset(c.keep)
	c.lock.Unlock()

	e.once.Do(func() {
		e.err = errPanicked // later callers get this if build panics
		if e.value, e.err = build(); e.err != nil {
			c.drop(key, e)
		}
	})
	value, _ := e.value.(T)
	return value, e.err
}

func (c *cache) drop(key string, e *entry) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.entries[key] == e {
		delete(c.entries, key)
	}
	e.expiry.Stop()
}

//go:embed builtin/documents.bin
var data []byte

//go:embed builtin/index.json
var index []byte

// builtin is the part of the archive that is served.
type builtin struct {
	release string
	v3      map[string]archive.Document // by path
	head    archive.Swagger             // without fragments
	v2      []archive.Fragment
}

// loadBuiltin reads the archive's index and keeps the entries of group versions that are served.
func loadBuiltin(served []schema.GroupVersion) (*builtin, error) {
	var i archive.Index
	if err := json.Unmarshal(index, &i); err != nil {
		return nil, fmt.Errorf("read the embedded OpenAPI index (run go generate ./server/openapi): %w", err)
	}
	on := map[string]bool{}
	for _, gv := range served {
		on[gv.String()] = true
	}
	b := &builtin{release: i.Release, v3: map[string]archive.Document{}, head: i.V2}
	b.head.Fragments = nil
	for _, d := range i.V3 {
		if d.Owners.Served(on) {
			b.v3[d.Path] = d
		}
	}
	b.v2 = slices.DeleteFunc(i.V2.Fragments, func(f archive.Fragment) bool { return !f.Owners.Served(on) })
	return b, nil
}
