package apistorage_test

import (
	"bytes"
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/apitesting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/features"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// upstream is k8s.io/apiserver's test suite for a storage.Interface, by function name.
var upstream = map[string]func(ctx context.Context, t *testing.T, f *fixture){
	"RunTestCreate": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestCreate(ctx, t, f, f.checkStored)
	},
	"RunTestCreateWithTTL":                              of(storagetesting.RunTestCreateWithTTL),
	"RunTestCreateWithKeyExist":                         of(storagetesting.RunTestCreateWithKeyExist),
	"RunTestGet":                                        of(storagetesting.RunTestGet),
	"RunTestUnconditionalDelete":                        of(storagetesting.RunTestUnconditionalDelete),
	"RunTestConditionalDelete":                          of(storagetesting.RunTestConditionalDelete),
	"RunTestDeleteWithSuggestion":                       of(storagetesting.RunTestDeleteWithSuggestion),
	"RunTestDeleteWithSuggestionAndConflict":            of(storagetesting.RunTestDeleteWithSuggestionAndConflict),
	"RunTestDeleteWithConflict":                         of(storagetesting.RunTestDeleteWithConflict),
	"RunTestDeleteWithSuggestionOfDeletedObject":        of(storagetesting.RunTestDeleteWithSuggestionOfDeletedObject),
	"RunTestValidateDeletionWithSuggestion":             of(storagetesting.RunTestValidateDeletionWithSuggestion),
	"RunTestValidateDeletionWithOnlySuggestionValid":    of(storagetesting.RunTestValidateDeletionWithOnlySuggestionValid),
	"RunTestPreconditionalDeleteWithSuggestion":         of(storagetesting.RunTestPreconditionalDeleteWithSuggestion),
	"RunTestPreconditionalDeleteWithOnlySuggestionPass": of(storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass),
	"RunTestList": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestList(ctx, t, f, f.compact, false, nil)
	},
	"RunTestConsistentList": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestConsistentList(ctx, t, f, f.increaseRevision, false, true, false)
	},
	"RunTestGetListNonRecursive": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestGetListNonRecursive(ctx, t, f.increaseRevision, f)
	},
	"RunTestGetListRecursivePrefix": of(storagetesting.RunTestGetListRecursivePrefix),
	"RunTestListContinuation": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestListContinuation(ctx, t, f, f.checkReads)
	},
	"RunTestListPaginationRareObject": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestListPaginationRareObject(ctx, t, f, f.checkReads)
	},
	"RunTestListContinuationWithFilter": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestListContinuationWithFilter(ctx, t, f, f.checkReads)
	},
	"RunTestListInconsistentContinuation": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestListInconsistentContinuation(ctx, t, f, f.compact)
	},
	"RunTestListResourceVersionMatch": of(storagetesting.RunTestListResourceVersionMatch),
	"RunTestGuaranteedUpdate": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestGuaranteedUpdate(ctx, t, f, f.checkStored)
	},
	"RunTestGuaranteedUpdateWithTTL":                   of(storagetesting.RunTestGuaranteedUpdateWithTTL),
	"RunTestGuaranteedUpdateChecksStoredData":          of(storagetesting.RunTestGuaranteedUpdateChecksStoredData),
	"RunTestGuaranteedUpdateWithConflict":              of(storagetesting.RunTestGuaranteedUpdateWithConflict),
	"RunTestGuaranteedUpdateWithSuggestionAndConflict": of(storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict),
	"RunTestDeleteExpectedTransformOrDecodeError": func(ctx context.Context, t *testing.T, f *fixture) {
		unsafeDeletion(t, true)
		storagetesting.RunTestDeleteExpectedTransformOrDecodeError(ctx, t, f, f.setFailing)
	},
	"RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError": func(ctx context.Context, t *testing.T, f *fixture) {
		unsafeDeletion(t, true)
		storagetesting.RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError(ctx, t, f, f.setFailing)
	},
	"RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError": func(ctx context.Context, t *testing.T, f *fixture) {
		unsafeDeletion(t, true)
		storagetesting.RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError(ctx, t, f)
	},
	"RunTestGetListWithoutErrorAggregation": func(ctx context.Context, t *testing.T, f *fixture) {
		unsafeDeletion(t, false)
		storagetesting.RunTestGetListWithoutErrorAggregation(ctx, t, f, errors.New("bits flipped"))
	},
	"RunTestTransformationFailure": func(ctx context.Context, t *testing.T, f *fixture) {
		unsafeDeletion(t, false)
		storagetesting.RunTestTransformationFailure(ctx, t, f)
	},
	"RunTestStats": func(ctx context.Context, t *testing.T, f *fixture) {
		f.Transformer = trimmed{f.Transformer}
		storagetesting.RunTestStats(ctx, t, f, f.Codec, trimmed{}, false)
		harness.Must(t, f.EnableResourceSizeEstimation(func(context.Context) ([]string, error) { return nil, nil }))
		f.Transformer = trimmed{}
		storagetesting.RunTestStats(ctx, t, f, f.Codec, trimmed{}, true)
	},
	"RunTestListPaging":          of(storagetesting.RunTestListPaging),
	"RunTestNamespaceScopedList": of(storagetesting.RunTestNamespaceScopedList),
	"RunTestCompactRevision": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestCompactRevision(ctx, t, f, f.increaseRevision, f.compact)
	},
	"RunTestKeySchema": of(storagetesting.RunTestKeySchema),

	"RunTestWatch": of(storagetesting.RunTestWatch),
	"RunTestWatchFromZero": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestWatchFromZero(ctx, t, f, f.compact)
	},
	"RunTestDeleteTriggerWatch":   of(storagetesting.RunTestDeleteTriggerWatch),
	"RunTestWatchFromNonZero":     of(storagetesting.RunTestWatchFromNonZero),
	"RunTestDelayedWatchDelivery": of(storagetesting.RunTestDelayedWatchDelivery),
	"RunTestWatchError":           of(storagetesting.RunTestWatchError),
	"RunTestWatchWithUnsafeDelete": func(ctx context.Context, t *testing.T, f *fixture) {
		unsafeDeletion(t, true)
		storagetesting.RunTestWatchWithUnsafeDelete(ctx, t, f, errors.New("bits flipped"))
	},
	"RunTestWatchContextCancel":                 of(storagetesting.RunTestWatchContextCancel),
	"RunTestWatcherTimeout":                     of(storagetesting.RunTestWatcherTimeout),
	"RunTestWatchDeleteEventObjectHaveLatestRV": of(storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV),
	"RunTestWatchInitializationSignal":          of(storagetesting.RunTestWatchInitializationSignal),
	"RunOptionalTestProgressNotify": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunOptionalTestProgressNotify(ctx, t, f, f.increaseRevision)
	},
	"RunTestClusterScopedWatch":   of(storagetesting.RunTestClusterScopedWatch),
	"RunTestNamespaceScopedWatch": of(storagetesting.RunTestNamespaceScopedWatch),
	"RunTestWatchDispatchBookmarkEvents": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, f, true)
	},
	"RunTestOptionalWatchBookmarksWithCorrectResourceVersion": of(storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion),
	"RunSendInitialEventsBackwardCompatibility":               of(storagetesting.RunSendInitialEventsBackwardCompatibility),
	"RunWatchSemantics":                     of(storagetesting.RunWatchSemantics),
	"RunWatchSemanticInitialEventsExtended": of(storagetesting.RunWatchSemanticInitialEventsExtended),
	"RunWatchListMatchSingle":               of(storagetesting.RunWatchListMatchSingle),
	"RunWatchErrorIsBlockingFurtherEvents":  of(storagetesting.RunWatchErrorIsBlockingFurtherEvents),
}

// of runs a function of the suite that needs an interface of the storage, and no hook.
func of[S any](run func(context.Context, *testing.T, S)) func(context.Context, *testing.T, *fixture) {
	return func(ctx context.Context, t *testing.T, f *fixture) { run(ctx, t, any(f).(S)) }
}

// notApplicable has the functions of the suite that are not run, and why.
var notApplicable = map[string]string{
	"RunTestGetListWithErrorAggregation": "it wants errors of a transformer that are not those of corrupt objects, which it has below the " +
		"layer that makes them so; package deletion of the concepts tests such lists",
}

func TestUpstreamStorageSQLite(t *testing.T) { runUpstream(t, engines.SQLite) }

func TestUpstreamStoragePostgres(t *testing.T) { runUpstream(t, engines.Postgres) }

// setsGates are the functions that change feature gates of the process.
var setsGates = sets.New("RunTestWatchWithUnsafeDelete", "RunWatchSemantics", "RunWatchSemanticInitialEventsExtended",
	"RunTestDeleteExpectedTransformOrDecodeError", "RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError",
	"RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError", "RunTestGetListWithoutErrorAggregation",
	"RunTestTransformationFailure")

func unsafeDeletion(t *testing.T, on bool) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.AllowUnsafeMalformedObjectDeletion, on)
}

// selects are the functions that select by labels and fields. The suite's values count as encrypted, so labels and fields are
// withheld; these functions also run on values stored in the clear.
var selects = sets.New("RunTestList", "RunTestListPaginationRareObject", "RunTestListContinuationWithFilter", "RunTestGetListNonRecursive",
	"RunTestWatch", "RunTestWatchFromZero", "RunTestClusterScopedWatch", "RunTestNamespaceScopedWatch")

func runUpstream(t *testing.T, open storetest.Opener) {
	for name, run := range upstream {
		t.Run(name, func(t *testing.T) {
			if !setsGates.Has(name) {
				t.Parallel()
			}
			run(context.Background(), t, newFixture(t, open))
		})
		if selects.Has(name) {
			t.Run(name+"InTheClear", func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, open)
				f.Transformer = trimmed{}
				run(context.Background(), t, f)
			})
		}
	}
}

// TestUpstreamStorageIsComplete reads the source of the suite, so that additions in newer versions are not missed.
func TestUpstreamStorageIsComplete(t *testing.T) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "k8s.io/apiserver/pkg/storage/testing").Output()
	if err != nil {
		t.Fatalf("finding the suite's source: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no source in %s: %v", dir, err)
	}
	found := 0
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		harness.Must(t, err)
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "Run") || strings.HasPrefix(f.Name.Name, "RunBenchmark") {
				continue
			}
			found++
			if upstream[f.Name.Name] == nil && notApplicable[f.Name.Name] == "" {
				t.Errorf("%s is neither run nor listed as not applicable", f.Name.Name)
			}
		}
	}
	if found < 49 {
		t.Errorf("found only %d functions in the suite", found)
	}
}

// fixture is a Storage of pods with the hooks that the suite needs.
type fixture struct {
	*apistorage.Storage
	store       *sqlstore.Store
	transformer *storagetesting.PrefixTransformer
}

var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	utilruntime.Must(example.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme)
}()

func newFixture(t *testing.T, open storetest.Opener) *fixture {
	// Objects expire soon only where that is tested.
	expiry := time.Hour
	if strings.HasSuffix(t.Name(), "WithTTL") {
		expiry = 200 * time.Millisecond
	}
	return newFixtureOn(t, storetest.Open(t, open, sqlstore.Options{ExpiryInterval: expiry}))
}

func newFixtureOn(t *testing.T, store *sqlstore.Store) *fixture {
	transformer := storagetesting.NewPrefixTransformer([]byte("test!"), false)
	s, err := apistorage.New(store, apistorage.Config{
		GroupResource: schema.GroupResource{Resource: "pods"},
		Prefix:        "/pods",
		Codec:         apitesting.TestCodec(codecs, examplev1.SchemeGroupVersion),
		Transformer:   transformer,
		NewObject:     func() runtime.Object { return &example.Pod{} },
		NewList:       func() runtime.Object { return &example.PodList{} },
		Attributes: func(obj runtime.Object) (labels.Set, fields.Set, error) {
			pod := obj.(*example.Pod)
			return pod.Labels, fields.Set{"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.Spec.NodeName}, nil
		},
	})
	harness.Must(t, err)
	return &fixture{Storage: s, store: store, transformer: transformer}
}

// UpdatePrefixTransformer implements InterfaceWithPrefixTransformer.
func (f *fixture) UpdatePrefixTransformer(modify storagetesting.PrefixTransformerModifier) func() {
	original := f.Transformer
	changed := *f.transformer
	f.Transformer = modify(&changed)
	return func() { f.Transformer = original }
}

// UpdateTransformer implements InterfaceWithTransformerOverride.
func (f *fixture) UpdateTransformer(modify storagetesting.TransformerModifier) func() {
	original := f.Transformer
	f.Transformer = modify(original)
	return func() { f.Transformer = original }
}

// setFailing makes what is stored unreadable, or readable again.
func (f *fixture) setFailing(failing bool) {
	f.Transformer = f.transformer
	if failing {
		f.Transformer = unreadable{f.transformer}
	}
}

type unreadable struct{ value.Transformer }

func (unreadable) TransformFromStorage(context.Context, []byte, value.Context) ([]byte, bool, error) {
	return nil, false, errors.New("bits flipped")
}

// trimmed stores a value without its final newline, so that sizes can be compared with what the suite computes.
type trimmed struct{ value.Transformer }

func (trimmed) TransformToStorage(_ context.Context, data []byte, _ value.Context) ([]byte, error) {
	return bytes.TrimSpace(data), nil
}

func (trimmed) TransformFromStorage(_ context.Context, data []byte, _ value.Context) ([]byte, bool, error) {
	return data, false, nil
}

func (f *fixture) checkStored(ctx context.Context, t *testing.T, key string) {
	row := strings.TrimPrefix(key, "/pods/")
	row = strings.TrimPrefix(row, "pods/")
	r, _, err := f.store.Get(ctx, sqlstore.Resource{Name: "pods"}, row)
	if err != nil || r == nil {
		t.Fatalf("nothing stored at %q (row %q): %v", key, row, err)
	}
	pod := &example.Pod{}
	stored, _, err := apistorage.Decrypt(ctx, f.Transformer, r.Value, "/pods/"+row)
	harness.Must(t, err)
	if _, _, err := f.Codec.Decode(stored, nil, pod); err != nil {
		t.Fatalf("stored value can't be decoded: %v", err)
	}
	if pod.ResourceVersion != "" {
		t.Error("the stored object has a resourceVersion")
	}
}

// checkReads limits how many values a list decodes: the database filters by selectors, so there may be fewer than with etcd.
func (f *fixture) checkReads(t *testing.T, _, estimated uint64) {
	if reads := f.transformer.GetReadsAndReset(); reads > estimated {
		t.Errorf("decoded %d values, want at most %d", reads, estimated)
	}
}

func (f *fixture) compact(ctx context.Context, t *testing.T, resourceVersion string) {
	revision, err := strconv.ParseInt(resourceVersion, 10, 64)
	harness.Must(t, err)
	harness.Must(t, f.store.Compact(ctx, revision))
	// etcd's compactor leaves a mark, which the suite counts as a revision.
	f.increaseRevision(ctx, t)
}

func (f *fixture) increaseRevision(ctx context.Context, t *testing.T) int64 {
	revision, err := f.store.Write(ctx, &sqlstore.Write{
		Operation: dialect.Create, Resource: sqlstore.Resource{Name: "others"},
		Key: strconv.FormatInt(time.Now().UnixNano(), 10), Labels: "{}", Fields: "{}", Value: []byte("{}"),
	})
	harness.Must(t, err)
	return revision
}
