package apistorage

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Some fields hold JSON that is compared and sent in protobuf byte for byte as the client wrote it: runtime.RawExtension and
// metav1.FieldsV1. encoding/json would remove its spaces and escape <, > and &. So the row of an object with such JSON has it as it
// is, and ends in a space. A JSON response gets it as encoding/json writes it; rows that end otherwise are such responses already.

// keptJSON is the JSON to be stored as it is, in place of the stand-ins of an object.
type keptJSON [][]byte

var (
	rawType    = reflect.TypeFor[runtime.RawExtension]()
	fieldsType = reflect.TypeFor[metav1.FieldsV1]()
)

// keepJSON returns obj, or a copy in the storage version with stand-ins for the JSON that encoding/json would change. It returns
// errText for JSON that is not UTF-8.
func (k *protobufKind) keepJSON(obj runtime.Object) (runtime.Object, keptJSON, error) {
	if k == nil || !k.forms().raw && !managedJSON(obj) {
		return obj, nil, nil
	}
	versioned, err := k.scheme.ConvertToVersion(obj, k.kind.GroupVersionKind().GroupVersion())
	if err != nil {
		return obj, nil, nil // the codec reports it
	}
	versioned = versioned.DeepCopyObject() // a conversion may share memory
	var kept keptJSON
	err = replaceJSON(reflect.ValueOf(versioned).Elem(), func(raw []byte) ([]byte, error) {
		if plain(raw) {
			return raw, nil
		}
		text, err := json.Marshal(json.RawMessage(raw))
		if err != nil || bytes.Equal(text, raw) && !mistakable(raw) {
			return raw, nil // the codec reports what is not JSON
		}
		if !utf8.Valid(raw) {
			return nil, errText
		}
		kept = append(kept, raw)
		return append(strconv.AppendInt(bytes.Clone(standIn), int64(len(kept)-1), 10), '"'), nil
	})
	if err != nil || kept == nil {
		return obj, nil, err
	}
	return versioned, kept, nil
}

// standIn begins a string that encoding/json writes for no string of an object, since it does not escape slashes.
var standIn = []byte(`"\/`)

var errStandIn = errors.New("the encoder changed a stand-in")

// restore returns data with what was kept in place of the stand-ins.
func (kept keptJSON) restore(data []byte) ([]byte, error) {
	if kept == nil {
		return data, nil
	}
	before, rest, _ := bytes.Cut(data, standIn)
	whole := before[:len(before):len(before)]
	for part := range bytes.SplitSeq(rest, standIn) {
		number, after, _ := bytes.Cut(part, []byte(`"`))
		i, err := strconv.Atoi(string(number))
		if err != nil || i >= len(kept) {
			return nil, errStandIn
		}
		whole = append(append(whole, kept[i]...), after...)
	}
	return append(whole, ' '), nil
}

// responseJSON returns the JSON of a row as encoding/json writes it.
func responseJSON(data []byte) []byte {
	if !bytes.HasSuffix(data, []byte(" ")) {
		return data
	}
	text, err := json.Marshal(json.RawMessage(data))
	if err != nil {
		return data // decoding it reports the error
	}
	return text
}

// plain reports whether encode certainly leaves JSON as it is.
func plain(raw []byte) bool {
	for _, c := range []byte(" <>&\n\r\t\xe2") { // the last begins U+2028 and U+2029
		if bytes.IndexByte(raw, c) >= 0 {
			return false
		}
	}
	return !mistakable(raw)
}

// mistakable reports whether encode could take JSON for a replacement or a stand-in.
func mistakable(raw []byte) bool { return lossy(raw) || bytes.Contains(raw, standIn) }

// managedJSON reports whether encoding/json may change the managed fields of obj.
func managedJSON(obj runtime.Object) bool {
	accessor, ok := obj.(metav1.ObjectMetaAccessor)
	if !ok {
		return false
	}
	for _, managed := range accessor.GetObjectMeta().GetManagedFields() {
		if managed.FieldsV1 != nil && !plain(managed.FieldsV1.GetRawBytes()) {
			return true
		}
	}
	return false
}

// holdsRaw reports whether values of type t may hold a RawExtension. seen are the types that have been looked at.
func holdsRaw(t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == rawType || seen[t] {
		return t == rawType
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return holdsRaw(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if holdsRaw(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}

func replaceJSON(v reflect.Value, replace func([]byte) ([]byte, error)) (err error) {
	switch v.Type() {
	case rawType:
		raw := v.Addr().Interface().(*runtime.RawExtension)
		raw.Raw, err = replace(raw.Raw)
		return err
	case fieldsType:
		fields := v.Addr().Interface().(*metav1.FieldsV1)
		raw, err := replace(fields.GetRawBytes())
		fields.SetRawBytes(raw)
		return err
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			err = replaceJSON(v.Elem(), replace)
		}
	case reflect.Struct:
		for i := 0; i < v.NumField() && err == nil; i++ {
			if v.Type().Field(i).IsExported() {
				err = replaceJSON(v.Field(i), replace)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			break
		}
		for i := 0; i < v.Len() && err == nil; i++ {
			err = replaceJSON(v.Index(i), replace)
		}
	case reflect.Map:
		for _, name := range v.MapKeys() {
			element := reflect.New(v.Type().Elem()).Elem()
			element.Set(v.MapIndex(name))
			if err = replaceJSON(element, replace); err != nil {
				return err
			}
			v.SetMapIndex(name, element)
		}
	}
	return err
}
