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
)

// upstream is k8s.io/apiserver's test suite for a storage.Interface, by function name.
var upstream = map[string]func(ctx context.Context, t *testing.T, f *fixture){
	"RunTestCreate": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestCreate(ctx, t, f, f.checkStored)
	},
	"RunTestCreateWithTTL": func(ctx context.Context, t *testing.T, f *fixture) { storagetesting.RunTestCreateWithTTL(ctx, t, f) },
	"RunTestCreateWithKeyExist": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestCreateWithKeyExist(ctx, t, f)
	},
	"RunTestGet": func(ctx context.Context, t *testing.T, f *fixture) { storagetesting.RunTestGet(ctx, t, f) },
	"RunTestUnconditionalDelete": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestUnconditionalDelete(ctx, t, f)
	},
	"RunTestConditionalDelete": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestConditionalDelete(ctx, t, f)
	},
	"RunTestDeleteWithSuggestion": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestDeleteWithSuggestion(ctx, t, f)
	},
	"RunTestDeleteWithSuggestionAndConflict": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestDeleteWithSuggestionAndConflict(ctx, t, f)
	},
	"RunTestDeleteWithConflict": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestDeleteWithConflict(ctx, t, f)
	},
	"RunTestDeleteWithSuggestionOfDeletedObject": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestDeleteWithSuggestionOfDeletedObject(ctx, t, f)
	},
	"RunTestValidateDeletionWithSuggestion": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestValidateDeletionWithSuggestion(ctx, t, f)
	},
	"RunTestValidateDeletionWithOnlySuggestionValid": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestValidateDeletionWithOnlySuggestionValid(ctx, t, f)
	},
	"RunTestPreconditionalDeleteWithSuggestion": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestPreconditionalDeleteWithSuggestion(ctx, t, f)
	},
	"RunTestPreconditionalDeleteWithOnlySuggestionPass": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass(ctx, t, f)
	},
	"RunTestList": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestList(ctx, t, f, f.compact, false, nil)
	},
	"RunTestConsistentList": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestConsistentList(ctx, t, f, f.increaseRevision, false, true, false)
	},
	"RunTestGetListNonRecursive": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestGetListNonRecursive(ctx, t, f.increaseRevision, f)
	},
	"RunTestGetListRecursivePrefix": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestGetListRecursivePrefix(ctx, t, f)
	},
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
	"RunTestListResourceVersionMatch": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestListResourceVersionMatch(ctx, t, f)
	},
	"RunTestGuaranteedUpdate": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestGuaranteedUpdate(ctx, t, f, f.checkStored)
	},
	"RunTestGuaranteedUpdateWithTTL": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestGuaranteedUpdateWithTTL(ctx, t, f)
	},
	"RunTestGuaranteedUpdateChecksStoredData": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestGuaranteedUpdateChecksStoredData(ctx, t, f)
	},
	"RunTestGuaranteedUpdateWithConflict": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestGuaranteedUpdateWithConflict(ctx, t, f)
	},
	"RunTestGuaranteedUpdateWithSuggestionAndConflict": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict(ctx, t, f)
	},
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
		if err := f.EnableResourceSizeEstimation(func(context.Context) ([]string, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
		f.Transformer = trimmed{}
		storagetesting.RunTestStats(ctx, t, f, f.Codec, trimmed{}, true)
	},
	"RunTestListPaging": func(ctx context.Context, t *testing.T, f *fixture) { storagetesting.RunTestListPaging(ctx, t, f) },
	"RunTestNamespaceScopedList": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestNamespaceScopedList(ctx, t, f)
	},
	"RunTestCompactRevision": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestCompactRevision(ctx, t, f, f.increaseRevision, f.compact)
	},
	"RunTestKeySchema": func(ctx context.Context, t *testing.T, f *fixture) { storagetesting.RunTestKeySchema(ctx, t, f) },

	"RunTestWatch": func(ctx context.Context, t *testing.T, f *fixture) { storagetesting.RunTestWatch(ctx, t, f) },
	"RunTestWatchFromZero": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestWatchFromZero(ctx, t, f, f.compact)
	},
	"RunTestDeleteTriggerWatch": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestDeleteTriggerWatch(ctx, t, f)
	},
	"RunTestWatchFromNonZero": func(ctx context.Context, t *testing.T, f *fixture) { storagetesting.RunTestWatchFromNonZero(ctx, t, f) },
	"RunTestDelayedWatchDelivery": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestDelayedWatchDelivery(ctx, t, f)
	},
	"RunTestWatchError": func(ctx context.Context, t *testing.T, f *fixture) { storagetesting.RunTestWatchError(ctx, t, f) },
	"RunTestWatchWithUnsafeDelete": func(ctx context.Context, t *testing.T, f *fixture) {
		unsafeDeletion(t, true)
		storagetesting.RunTestWatchWithUnsafeDelete(ctx, t, f, errors.New("bits flipped"))
	},
	"RunTestWatchContextCancel": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestWatchContextCancel(ctx, t, f)
	},
	"RunTestWatcherTimeout": func(ctx context.Context, t *testing.T, f *fixture) { storagetesting.RunTestWatcherTimeout(ctx, t, f) },
	"RunTestWatchDeleteEventObjectHaveLatestRV": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV(ctx, t, f)
	},
	"RunTestWatchInitializationSignal": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestWatchInitializationSignal(ctx, t, f)
	},
	"RunOptionalTestProgressNotify": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunOptionalTestProgressNotify(ctx, t, f, f.increaseRevision)
	},
	"RunTestClusterScopedWatch": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestClusterScopedWatch(ctx, t, f)
	},
	"RunTestNamespaceScopedWatch": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestNamespaceScopedWatch(ctx, t, f)
	},
	"RunTestWatchDispatchBookmarkEvents": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, f, true)
	},
	"RunTestOptionalWatchBookmarksWithCorrectResourceVersion": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion(ctx, t, f)
	},
	"RunSendInitialEventsBackwardCompatibility": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunSendInitialEventsBackwardCompatibility(ctx, t, f)
	},
	"RunWatchSemantics": func(ctx context.Context, t *testing.T, f *fixture) { storagetesting.RunWatchSemantics(ctx, t, f) },
	"RunWatchSemanticInitialEventsExtended": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunWatchSemanticInitialEventsExtended(ctx, t, f)
	},
	"RunWatchListMatchSingle": func(ctx context.Context, t *testing.T, f *fixture) { storagetesting.RunWatchListMatchSingle(ctx, t, f) },
	"RunWatchErrorIsBlockingFurtherEvents": func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunWatchErrorIsBlockingFurtherEvents(ctx, t, f)
	},
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
		if err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	if err := f.store.Compact(ctx, revision); err != nil {
		t.Fatal(err)
	}
	// etcd's compactor leaves a mark, which the suite counts as a revision.
	f.increaseRevision(ctx, t)
}

func (f *fixture) increaseRevision(ctx context.Context, t *testing.T) int64 {
	revision, err := f.store.Write(ctx, &sqlstore.Write{
		Operation: dialect.Create, Resource: sqlstore.Resource{Name: "others"},
		Key: strconv.FormatInt(time.Now().UnixNano(), 10), Labels: "{}", Fields: "{}", Value: []byte("{}"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return revision
}
