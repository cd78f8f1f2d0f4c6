// Command sbom prints the modules linked into a Go binary, with the hashes of go.sum, as a CycloneDX document. The same binary
// gives the same document.
//
//	sbom BINARY VERSION >BINARY.cdx.json
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY VERSION")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(path, version string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	main := cdx.Component{Type: cdx.ComponentTypeApplication, Name: info.Main.Path, Version: version, PackageURL: purl(info.Main.Path, version)}
	main.BOMRef = main.PackageURL
	var settings []cdx.Property
	for _, s := range info.Settings {
		settings = append(settings, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
	}
	main.Properties = &settings

	std := strings.TrimPrefix(info.GoVersion, "go")
	components := []cdx.Component{{Type: cdx.ComponentTypeLibrary, Name: "std", Version: std, PackageURL: purl("std", std), BOMRef: purl("std", std)}}
	used := []string{components[0].BOMRef}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		component := cdx.Component{Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl(m.Path, m.Version)}
		component.BOMRef = component.PackageURL
		if sum, found := strings.CutPrefix(m.Sum, "h1:"); found {
			hash, err := base64.StdEncoding.DecodeString(sum)
			if err != nil {
				return fmt.Errorf("%s: %w", m.Path, err)
			}
			component.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(hash)}}
		}
		components = append(components, component)
		used = append(used, component.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &used}}
	return cdx.NewBOMEncoder(os.Stdout, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

func purl(path, version string) string { return "pkg:golang/" + path + "@" + version }
